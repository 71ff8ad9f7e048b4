-- A 70B model in fp16 on two H100: the times of h100x2-70b-fp8 with twice the bytes a weight, no
-- measurement. What is left for KV of 2 x 80 GB is little; that there are about 1,500 blocks was
-- concluded from a published hit rate (20 prompts of 1,200 tokens stay on a replica).
name = "h100x2-70b-fp16"
step_floor_ms = 43              -- 70 GB of weights a GPU over 3.35 TB/s, two all-reduces a layer
prefill_step_ms = 3
prefill_token_ms = 0.2          -- half the peak of fp8
prefill_context_ms = 2.0e-6
decode_seq_ms = 0.12
decode_context_ms = 6.8e-5      -- KV of two bytes
jitter = 0.02
overhead_ms = 20
startup_ms = 120000
bytes_per_token = 4
blocks = 1500
max_num_batched_tokens = 8192   -- vLLM's default for 70 GB and more
max_num_seqs = 256
max_model_len = 16384           -- as many tokens as there is room for, and less
chat_head_tokens = 28
chat_system_head_tokens = 10
replicas = 30

-- A 70B model in fp8 on two H100, as the fleet of a published study of cache-aware routing has it.
-- Published: 40,071 blocks a replica (which needs more than 2 x 80 GB, or fp8 KV), 30 replicas. The
-- times are a roofline, the prefill rate was rounded to fit that study. The machine of NVIDIA's
-- table is the other one, h100x2-70b-fp8-nim.
name = "h100x2-70b-fp8"
step_floor_ms = 22              -- 35 GB of weights a GPU over 3.35 TB/s, two all-reduces a layer
prefill_step_ms = 3
prefill_token_ms = 0.1          -- 10,000 tokens/s
prefill_context_ms = 2.0e-6
decode_seq_ms = 0.12
decode_context_ms = 3.4e-5
jitter = 0.02
overhead_ms = 20
startup_ms = 90000
bytes_per_token = 4
blocks = 40071
max_num_batched_tokens = 8192   -- vLLM's default for 70 GB and more
max_num_seqs = 256
max_model_len = 131072
chat_head_tokens = 28
chat_system_head_tokens = 10
replicas = 30

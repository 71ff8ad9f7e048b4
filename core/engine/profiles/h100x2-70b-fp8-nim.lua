-- Llama 3.3 70B in fp8 on two H100 of 80 GB, as NVIDIA's published table of an inference container
-- has it (5,000 tokens in, 500 out, 1 to 100 at once): the roofline form; floor, tokens and context
-- were read off that table, the rest is weights and bandwidths. README.md has it cell by cell.
name = "h100x2-70b-fp8-nim"
form = "roofline"
step_floor_ms = 5.5
weights_ms = 13                 -- 35.3 GB a GPU over 0.81 x 3.35 TB/s
prefill_token_ms = 0.0715       -- 139 GFLOP a token on two GPUs at 970 TFLOP/s each
prefill_context_ms = 2.6e-6
decode_seq_ms = 0.03
decode_context_ms = 2.4e-5      -- fp8 KV
jitter = 0.03
overhead_ms = 11.5
startup_ms = 90000
bytes_per_token = 4
blocks = 29400                  -- 470,000 tokens: about 85 requests of that table fit
max_num_batched_tokens = 8192
max_num_seqs = 1024             -- vLLM's default for 70 GB and more
max_model_len = 131072
chat_head_tokens = 28
chat_system_head_tokens = 10
replicas = 30

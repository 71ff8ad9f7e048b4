-- A second opinion on h100-8b-bf16: the roofline form, from published kernel timings of a 7B model
-- on an H100. Nothing of it was checked against a whole run.
name = "h100-8b-bf16-nim"
form = "roofline"
step_floor_ms = 1.2
weights_ms = 5.8                -- 15 GB over 0.78 x 3.35 TB/s
prefill_token_ms = 0.027        -- 14 GFLOP a token at 520 TFLOP/s
prefill_context_ms = 1.2e-6
decode_seq_ms = 0.015
decode_context_ms = 5.5e-5
jitter = 0.03
overhead_ms = 11.5
startup_ms = 40000
bytes_per_token = 4
blocks = 28100
max_num_batched_tokens = 8192
max_num_seqs = 1024             -- vLLM's default for 70 GB and more
max_model_len = 131072
chat_head_tokens = 28
chat_system_head_tokens = 10
replicas = 30

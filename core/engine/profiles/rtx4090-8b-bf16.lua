-- Llama 3.1 8B in bf16 on one RTX 4090 of 24 GB. Every time that belongs to a step is fitted to a
-- published table of kernel timings (experiments/data/vllm-measured, test_engine_measured) and came
-- within 2 % of a published run of vLLM 0.19 in its medians; no time of the run was used.
name = "rtx4090-8b-bf16"
step_floor_ms = 16.26           -- 16 GB of weights over 1 TB/s
prefill_token_ms = 0.0643
prefill_context_ms = 5.0e-6
decode_seq_ms = 0.048
decode_context_ms = 2.17e-4     -- 128 KiB a token over 1 TB/s would be 1.3e-4
jitter = 0.02
overhead_ms = 15                -- a guess: as the others'
startup_ms = 40000              -- a guess
bytes_per_token = 4
blocks = 2588                   -- as the run had
max_num_batched_tokens = 2048
max_num_seqs = 256
max_model_len = 32768
chat_head_tokens = 28
chat_system_head_tokens = 10
replicas = 1

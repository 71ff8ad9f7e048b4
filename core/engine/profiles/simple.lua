-- Nobody's machine: fast, exact, easy to add up in the head. For tests and first steps.
name = "simple"
step_floor_ms = 2
prefill_token_ms = 0.02
decode_seq_ms = 0.02
bytes_per_token = 4
blocks = 8192
max_num_batched_tokens = 2048
max_num_seqs = 256
max_model_len = 32768
chat_head_tokens = 1
chat_system_head_tokens = 1
replicas = 3

-- Llama 3.1 8B AWQ on one RTX 3090, as in a published study of five of them.
--
-- Published: 7,872 blocks, 256 sequences, 2,048 tokens a step; 512 tokens prefilled in 124.1 ms and
-- 2,048 in 490.7 ms (the engine's own timer); first token after 329 ms for an unseen prompt of
-- 2,048 bytes and 46 ms for one sent again; 7.8 ms between tokens alone, 12 to 13 ms among 6.4, and
-- 51 ms among 32. Every time below is fitted to these.
name = "rtx3090-8b-awq"
step_floor_ms = 7.3             -- 7.8 ms alone, less one sequence and its context
prefill_step_ms = 4             -- 46 ms re-sent, less the path and a bare step
prefill_token_ms = 0.2157       -- (490.7 - 124.1) ms over 1,536 tokens, less their context
prefill_context_ms = 2.0e-5     -- what is left between the two timings
decode_seq_ms = 0.25            -- 7.8, 12 to 13 and 51 ms: a line does not go through all three,
decode_seq_squared_ms = 0.03    -- a parabola does
decode_context_ms = 1.5e-4      -- KV bytes of a token over the bandwidth
jitter = 0.02
overhead_ms = 32                -- 46 ms re-sent, less a step
startup_ms = 40000              -- from a kill until the first answer, as seen there
bytes_per_token = 1.59          -- of the study's synthetic text
blocks = 7872
max_num_batched_tokens = 2048
max_num_seqs = 256
max_model_len = 8192
chat_head_tokens = 28
chat_system_head_tokens = 10
replicas = 5

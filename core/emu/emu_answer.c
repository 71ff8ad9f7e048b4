#include "emu_answer.h"

#include "memory.h"

struct kvr_emu_usage kvr_emu_answer_usage(const struct kvr_emu_answer *answer)
{
    struct kvr_emu_usage usage = {0};
    uint32_t each = answer->prompts ? answer->choices_len / answer->prompts : 0;
    for (uint32_t i = 0; i < answer->choices_len; i++) {
        const struct kvr_emu_choice *choice = &answer->choices[i];
        KVR_CHECK(each > 0);
        usage.completion_tokens += choice->tokens;
        if (i % each)
            continue;
        usage.prompt_tokens += choice->prompt_tokens;
        usage.cached_tokens += choice->cached_tokens;
    }
    return usage;
}

void kvr_emu_choice_text(const struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                         struct kvr_buffer *out)
{
    char *to = kvr_buffer_reserve(out, choice->bytes);
    kvr_emu_text_bytes(answer->alphabet, choice->seed, 0, choice->bytes, to);
    out->len += choice->bytes;
}

const char *kvr_emu_finish_name(enum kvr_finish_reason reason)
{
    static const char *const names[KVR_FINISH_REASONS] = {
        [KVR_FINISH_STOP] = "stop",
        [KVR_FINISH_LENGTH] = "length",
        [KVR_FINISH_ABORT] = "abort",
        [KVR_FINISH_ERROR] = "error",
    };
    return names[reason];
}

void kvr_emu_answer_deinit(struct kvr_emu_answer *answer)
{
    kvr_buffer_deinit(&answer->head);
    kvr_buffer_deinit(&answer->tail);
    kvr_buffer_deinit(&answer->token);
    kvr_free(answer->choices);
    answer->choices = NULL;
}

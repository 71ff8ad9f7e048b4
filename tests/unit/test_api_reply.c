#include "unit.h"

#include "api_reply.h"
#include "api_request.h"
#include "memory.h"

static struct kvr_prompt prompt;

static void scan(const char *body)
{
    struct kvr_api_request request;
    struct kvr_error error = {0};
    if (kvr_api_request_scan(&request, KVR_API_CHAT, kvr_slice_of(body), NULL, &prompt, &error))
        fail_msg("%s", error.text);
}

/* Believing the reply gives exactly the blocks of the turn that follows, up to its new message. */
static void test_a_reply_is_the_next_turns_prefix(void **state)
{
    (void)state;
    static const char question[] = "Which of the docks takes a parcel of forty kilograms, please?";
    static const char reply[] =
        "Dock seven does.\n\"Bring a form\", and \xc3\xa9trennes too: it is "
        "open until six o'clock in the evening on weekdays.";
    char first[512], second[1024];
    snprintf(first, sizeof first,
             "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", question);
    snprintf(second, sizeof second,
             "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"},"
             "{\"role\":\"assistant\",\"content\":\"Dock seven does.\\n\\\"Bring a form\\\", and "
             "\\u00e9trennes too: it is open until six o'clock in the evening on weekdays.\"},"
             "{\"role\":\"user\",\"content\":\"Thanks!\"}]}",
             question);
    kvr_prompt_init(&prompt, &(struct kvr_prompt_options){.block_bytes = 16});
    scan(first);
    uint32_t own = prompt.chain_len;
    struct kvr_prompt_tail tail = prompt.tail;
    kvr_prompt_resume(&prompt, &tail);
    kvr_api_add_reply(&prompt, kvr_slice_of(reply));
    uint32_t more = prompt.chain_len;
    assert_int_equal(prompt.first_block, own);
    assert_true(more >= 6);
    uint64_t *believed = kvr_alloc(more * sizeof *believed);
    memcpy(believed, prompt.chain, more * sizeof *believed);
    scan(second);
    assert_true(prompt.chain_len >= own + more);
    assert_memory_equal(prompt.chain + own, believed, more * sizeof *believed);
    kvr_free(believed);
    kvr_prompt_deinit(&prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_reply_is_the_next_turns_prefix)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

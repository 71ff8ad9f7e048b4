/* The file of a gate. A good one is valid JSON, has every bound in its range and the keys that its
 * text has, and guards: traffic of other keys is seen, traffic of its own is not. */
#include "fuzz.h"

#include "envelope.h"
#include "naive_json.h"

#define WINDOW_NS UINT64_C(1000000000)

static void check_set(const struct kvr_envelope *envelope)
{
    uint32_t count = 0;
    FUZZ_CHECK(envelope->keys_len > 0 && envelope->keys_len <= envelope->keys_mask);
    for (uint32_t i = 0; i <= envelope->keys_mask; i++) {
        FUZZ_CHECK(!envelope->keys[i] || kvr_envelope_has(envelope, envelope->keys[i]));
        count += envelope->keys[i] != 0;
    }
    FUZZ_CHECK(count == envelope->keys_len);
    FUZZ_CHECK(!kvr_envelope_has(envelope, 0));
}

static uint64_t first_key(const struct kvr_envelope *envelope)
{
    uint32_t at = 0;
    while (!envelope->keys[at])
        at++;
    return envelope->keys[at];
}

/* A hundred requests of one key, then a window of nothing. */
static enum kvr_envelope_left drive(struct kvr_slice text, bool own)
{
    const struct kvr_envelope_options options = {.window_ns = WINDOW_NS, .requests_min = 10};
    struct kvr_envelope *envelope = kvr_envelope_create(text, &options, NULL);
    uint64_t key = own ? first_key(envelope) : 0;
    bool left = false;
    for (uint64_t i = 0; i < 100; i++)
        left |= kvr_envelope_arrived(envelope, i * WINDOW_NS / 100, key);
    left |= kvr_envelope_tick(envelope, 3 * WINDOW_NS);
    enum kvr_envelope_left found = envelope->left;
    FUZZ_CHECK(left == (found != KVR_ENVELOPE_KEPT));
    kvr_envelope_destroy(envelope);
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    char *bytes = fuzz_rest(&input);
    struct kvr_slice text = kvr_slice_make(bytes, size);
    struct kvr_error error = {0};
    struct kvr_envelope *envelope = kvr_envelope_create(text, NULL, &error);
    if (envelope) {
        FUZZ_CHECK(naive_json(text, true) == NAIVE_GOOD);
        FUZZ_CHECK(envelope->active_share >= 0 && envelope->active_share <= 1);
        FUZZ_CHECK(envelope->candidate.name[0] && envelope->against.name[0]);
        FUZZ_CHECK(envelope->candidate.params_hash);
        FUZZ_CHECK(!envelope->spill.name[0] || envelope->spill.params_hash);
        FUZZ_CHECK(envelope->ttft_ns <= UINT64_C(1000000000000000));
        FUZZ_CHECK(envelope->token_ns <= UINT64_C(1000000000000000));
        check_set(envelope);
        FUZZ_CHECK(drive(text, true) == KVR_ENVELOPE_KEPT);
        FUZZ_CHECK(drive(text, false) ==
                   (envelope->active_share > 0 ? KVR_ENVELOPE_ACTIVE_SET : KVR_ENVELOPE_KEPT));
    } else {
        FUZZ_CHECK(error.code == KVR_E_INVALID && error.text[0]);
    }
    kvr_envelope_destroy(envelope);
    free(bytes);
    return 0;
}

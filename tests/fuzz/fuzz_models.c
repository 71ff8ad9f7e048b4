/* A replica's answer to GET /v1/models. Input: one byte of choices, the answer; behind a NUL, a
 * later answer.
 *
 * A good answer is an object with a list; what is kept of it are valid objects with different
 * names, within bounds, and `created` stays what it was first; a bad one changes nothing. */
#include "fuzz.h"

#include "naive_json.h"
#include "replica.h"
#include "served_models.h"

enum choices { FIXED_NAMES = 1 };

static struct kvr_slice known_created(const void *context, struct kvr_slice id)
{
    return kvr_served_created(context, id);
}

static struct kvr_buffer note(const struct kvr_served_models *served)
{
    struct kvr_buffer log = {0};
    FUZZ_CHECK(served->count <= 2 * KVR_REPLICA_MODELS_MAX);
    for (uint32_t i = 0; i < served->count; i++) {
        struct kvr_slice id = kvr_served_id(served, i);
        struct kvr_slice object = kvr_served_object(served, i);
        FUZZ_CHECK(id.len <= KVR_MODEL_NAME_MAX);
        FUZZ_CHECK(naive_json(object, true) == NAIVE_GOOD);
        for (uint32_t k = 0; k < i; k++)
            FUZZ_CHECK(!kvr_slice_equal(id, kvr_served_id(served, k)));
        fuzz_note_slice(&log, "id", id);
        fuzz_note_slice(&log, "object", object);
    }
    return log;
}

static void take_answer(struct kvr_served_models *served, struct kvr_slice answer)
{
    struct kvr_created_source source = {served, known_created};
    struct kvr_buffer before = note(served);
    int rc = kvr_served_models_read(served, answer, &source);
    struct kvr_buffer after = note(served);
    if (rc < 0)
        fuzz_same(&before, &after);
    else
        FUZZ_CHECK(naive_json(answer, true) == NAIVE_GOOD);
    /* The same answer again is no change. */
    if (rc >= 0) {
        FUZZ_CHECK(kvr_served_models_read(served, answer, &source) == rc);
        struct kvr_buffer again = note(served);
        fuzz_same(&after, &again);
        kvr_buffer_deinit(&again);
    }
    kvr_buffer_deinit(&before);
    kvr_buffer_deinit(&after);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    unsigned choices = fuzz_byte(&input);
    char *bytes = fuzz_rest(&input);
    struct kvr_served_models served = {0};
    if (choices & FIXED_NAMES) {
        const struct kvr_slice names[] = {kvr_slice_of("m"), kvr_slice_of("q\"uoted"),
                                          kvr_slice_of("m")};
        kvr_served_models_fix(&served, names, 2, 1700000000);
    }
    const char *nul = input.left ? memchr(bytes, '\0', input.left) : NULL;
    size_t len = nul ? (size_t)(nul - bytes) : input.left;
    struct fuzz_input first = {(const uint8_t *)bytes, len};
    char *copy = fuzz_rest(&first);
    take_answer(&served, kvr_slice_make(copy, len));
    free(copy);
    if (nul)
        take_answer(&served, kvr_slice_make(nul + 1, input.left - len - 1));
    kvr_served_models_deinit(&served);
    free(bytes);
    return 0;
}

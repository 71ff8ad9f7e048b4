/* Plans that were written. Input: a plan, for the destinations a:1, which serves the model red,
 * b:1#2 and c:1, which serve any.
 *
 * A plan that is taken has each of its keys once, by falling rate, each with destinations that are
 * all different, and loads that come to its rates; another kind of line end changes nothing. It has
 * at least one key; if its first line says how many, a part of the text is no plan. One that is
 * refused says why, and in which line. Nothing is read past the end of the text.
 */
#include "fuzz.h"

#include <math.h>

#include "memory.h"
#include "plan_file.h"
#include "replica.h"

static const double weights[] = {1, 2, 0.5};

static struct kvr_plan_fleet make_fleet(uint64_t replicas[3], struct kvr_serving *serving)
{
    struct kvr_replica red = {.models_known = true, .models_count = 1};
    const struct kvr_replica any = {.any_model = true};
    red.models[0] = kvr_name_hash(kvr_slice_of("red"));
    kvr_serving_init(serving, 3);
    kvr_serving_add(serving, &red);
    kvr_serving_add(serving, &any);
    kvr_serving_add(serving, &any);
    replicas[0] = kvr_name_hash(kvr_slice_of("a:1"));
    replicas[1] = kvr_name_hash(kvr_slice_of("b:1#2"));
    replicas[2] = kvr_name_hash(kvr_slice_of("c:1"));
    return (struct kvr_plan_fleet){replicas, weights, serving, 3};
}

static void check_entry(const struct kvr_plan *plan, const struct kvr_plan_key *keys, uint32_t i)
{
    const struct kvr_plan_entry *entry = &plan->entries[i];
    uint32_t count;
    const uint16_t *assigned = kvr_plan_lookup(plan, entry->key, &count);
    FUZZ_CHECK(keys[i].key == entry->key && keys[i].rate >= 0 && isfinite(keys[i].rate));
    FUZZ_CHECK(i == 0 || keys[i].rate <= keys[i - 1].rate);
    FUZZ_CHECK(count == entry->count && count >= 1 && count <= 3);
    FUZZ_CHECK(assigned == plan->assigned + entry->first);
    for (uint32_t copy = 0; copy < count; copy++) {
        FUZZ_CHECK(assigned[copy] < 3);
        for (uint32_t other = 0; other < copy; other++)
            FUZZ_CHECK(assigned[other] != assigned[copy]);
    }
}

static void check_sums(const struct kvr_plan *plan)
{
    double loads = 0, rate = plan->admitted_rate + plan->tail_rate;
    uint32_t copies = 0;
    for (uint32_t i = 0; i < 3; i++)
        loads += plan->loads[i];
    for (uint32_t i = 0; i < plan->admitted; i++)
        copies += plan->entries[i].count;
    FUZZ_CHECK(copies == plan->copies && plan->admitted <= plan->keys && plan->admitted > 0);
    FUZZ_CHECK(!isfinite(rate) || fabs(loads - rate) <= 1e-9 * rate);
    FUZZ_CHECK(!isfinite(rate) || plan->imbalance >= 1 - 1e-9);
}

/* Its last byte is the end of a line that is not blank. */
static bool is_needed(struct kvr_slice text)
{
    size_t at = text.len - 1;
    if (at > 0 && text.data[at - 1] == '\r')
        at--;
    return at > 0 && text.data[at - 1] != '\n';
}

/* What it says: its placements, or why there are none. */
static struct kvr_buffer understand(struct kvr_slice text)
{
    struct kvr_buffer log = {0};
    uint64_t replicas[3];
    struct kvr_serving serving;
    struct kvr_plan_fleet fleet = make_fleet(replicas, &serving);
    struct kvr_error error = {0};
    struct kvr_plan_key *keys = NULL;
    uint32_t version;
    struct kvr_plan *plan = kvr_plan_read(text, &fleet, &keys, &version, &error);
    kvr_serving_deinit(&serving);
    if (!plan) {
        FUZZ_CHECK(error.code && strncmp(error.text, "line ", 5) == 0);
        kvr_buffer_printf(&log, "refused");
        return log;
    }
    for (uint32_t i = 0; i < plan->admitted; i++) {
        check_entry(plan, keys, i);
        kvr_buffer_printf(&log, "%llx %a", (unsigned long long)keys[i].key, keys[i].rate);
        for (uint32_t copy = 0; copy < plan->entries[i].count; copy++)
            kvr_buffer_printf(&log, " %u", plan->assigned[plan->entries[i].first + copy]);
    }
    check_sums(plan);
    if (version > 1 && is_needed(text)) {
        struct kvr_buffer part = understand(kvr_slice_make(text.data, text.len - 1));
        FUZZ_CHECK(kvr_slice_is(kvr_buffer_slice(&part), "refused"));
        kvr_buffer_deinit(&part);
    }
    kvr_free(keys);
    kvr_plan_destroy(plan);
    return log;
}

/* The text with CR LF for LF. */
static struct kvr_buffer with_returns(struct kvr_slice text)
{
    struct kvr_buffer out = {0};
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == '\n')
            kvr_buffer_append_text(&out, "\r");
        kvr_buffer_append(&out, &text.data[i], 1);
    }
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    char *bytes = fuzz_rest(&input);
    struct kvr_slice text = {bytes, size};
    struct kvr_buffer plain = understand(text);
    if (!memchr(bytes, '\r', size)) { /* one before a line's end belongs to the end */
        struct kvr_buffer returned = with_returns(text);
        struct kvr_buffer other = understand(kvr_buffer_slice(&returned));
        fuzz_same(&plain, &other);
        kvr_buffer_deinit(&other);
        kvr_buffer_deinit(&returned);
    }
    kvr_buffer_deinit(&plain);
    free(bytes);
    return 0;
}

#include "envelope.h"

#include "check.h"
#include "memory.h"
#include "rng.h"

const char *kvr_envelope_left_name(enum kvr_envelope_left left)
{
    static const char *const names[] = {[KVR_ENVELOPE_KEPT] = "kept",
                                        [KVR_ENVELOPE_ACTIVE_SET] = "active_set",
                                        [KVR_ENVELOPE_TTFT_P99] = "ttft_p99"};
    return names[left];
}

void kvr_envelope_destroy(struct kvr_envelope *envelope)
{
    if (!envelope)
        return;
    kvr_free(envelope->keys);
    kvr_free(envelope);
}

bool kvr_envelope_has(const struct kvr_envelope *envelope, uint64_t key)
{
    uint32_t at = (uint32_t)kvr_mix64(key) & envelope->keys_mask;
    while (envelope->keys[at] && envelope->keys[at] != key)
        at = (at + 1) & envelope->keys_mask;
    return key && envelope->keys[at] == key;
}

/* Slices are numbered from 1, so that none is 0. */
static uint64_t slice_of(const struct kvr_envelope *envelope, uint64_t now_ns)
{
    return now_ns / (envelope->options.window_ns / KVR_ENVELOPE_SLICES) + 1;
}

struct kvr_envelope_counts kvr_envelope_window(const struct kvr_envelope *envelope, uint64_t now_ns)
{
    struct kvr_envelope_counts sum = {0};
    uint64_t now = slice_of(envelope, now_ns);
    for (uint64_t back = 0; back < KVR_ENVELOPE_SLICES && back < envelope->slice; back++) {
        uint64_t number = envelope->slice - back;
        if (number + KVR_ENVELOPE_SLICES <= now)
            break;
        const struct kvr_envelope_counts *slice = &envelope->slices[number % KVR_ENVELOPE_SLICES];
        sum.requests += slice->requests;
        sum.active += slice->active;
        sum.answers += slice->answers;
        sum.late += slice->late;
    }
    return sum;
}

static enum kvr_envelope_left judge(const struct kvr_envelope *envelope,
                                    const struct kvr_envelope_counts *saw)
{
    uint64_t least = envelope->options.requests_min;
    if (saw->requests >= least &&
        (double)saw->active < envelope->active_share * (double)saw->requests)
        return KVR_ENVELOPE_ACTIVE_SET;
    if (saw->answers >= least && saw->late * 100 > saw->answers)
        return KVR_ENVELOPE_TTFT_P99;
    return KVR_ENVELOPE_KEPT;
}

bool kvr_envelope_tick(struct kvr_envelope *envelope, uint64_t now_ns)
{
    uint64_t now = slice_of(envelope, now_ns);
    if (now <= envelope->slice)
        return false;
    bool before = envelope->left != KVR_ENVELOPE_KEPT;
    if (!before && envelope->slice) {
        /* As of the end of the slice that is over. */
        uint64_t ended_ns =
            envelope->slice * (envelope->options.window_ns / KVR_ENVELOPE_SLICES) - 1;
        struct kvr_envelope_counts saw = kvr_envelope_window(envelope, ended_ns);
        envelope->left = judge(envelope, &saw);
        if (envelope->left) {
            envelope->left_ns = now_ns;
            envelope->saw = saw;
        }
    }
    uint64_t first =
        now - envelope->slice > KVR_ENVELOPE_SLICES ? now - KVR_ENVELOPE_SLICES : envelope->slice;
    for (uint64_t number = first + 1; number <= now; number++)
        envelope->slices[number % KVR_ENVELOPE_SLICES] = (struct kvr_envelope_counts){0};
    envelope->slice = now;
    return !before && envelope->left;
}

bool kvr_envelope_arrived(struct kvr_envelope *envelope, uint64_t now_ns, uint64_t key)
{
    bool left = kvr_envelope_tick(envelope, now_ns);
    struct kvr_envelope_counts *slice = &envelope->slices[envelope->slice % KVR_ENVELOPE_SLICES];
    slice->requests++;
    slice->active += kvr_envelope_has(envelope, key);
    return left;
}

bool kvr_envelope_answered(struct kvr_envelope *envelope, uint64_t now_ns, uint64_t ttft_ns)
{
    bool left = kvr_envelope_tick(envelope, now_ns);
    struct kvr_envelope_counts *slice = &envelope->slices[envelope->slice % KVR_ENVELOPE_SLICES];
    slice->answers++;
    slice->late += ttft_ns > envelope->ttft_ns;
    return left;
}

#include "gate.h"

#include <math.h>
#include <stdio.h>

#include "log.h"

#define TOKENS_MAX 1e12 /* of one answer, whatever a request asks for */

static void note(struct kvr_router *router, bool left)
{
    if (!left)
        return;
    const struct kvr_envelope *envelope = router->envelope;
    const struct kvr_envelope_counts *saw = &envelope->saw;
    const struct kvr_envelope_answers *streams = &saw->answers[KVR_ENVELOPE_STREAMS];
    const struct kvr_envelope_answers *wholes = &saw->answers[KVR_ENVELOPE_WHOLES];
    router->metrics.envelopes_left++;
    router->queue.epoch++; /* what waits for the word of a policy is asked about anew */
    kvr_shadow_scripts_changed(router);
    kvr_log(KVR_LOG_WARN,
            "the envelope of the gate of %s is left (%s): %s decides until a new gate. Of %llu "
            "requests %llu had known keys, of %llu streams %llu were late, of %llu whole answers "
            "%llu",
            envelope->candidate.name, kvr_envelope_left_name(envelope->left),
            router->records[KVR_ROLE_BASELINE] ? router->records[KVR_ROLE_BASELINE]->info.name
                                               : "least in flight",
            (unsigned long long)saw->requests, (unsigned long long)saw->active,
            (unsigned long long)streams->count, (unsigned long long)streams->late,
            (unsigned long long)wholes->count, (unsigned long long)wholes->late);
}

/* ---- what was gated, and what acts ---- */

static const struct kvr_script_info *info_of(const struct kvr_router *router,
                                             enum kvr_script_role role)
{
    return router->records[role] ? &router->records[role]->info : NULL;
}

struct kvr_gate_cover kvr_gate_cover(const struct kvr_router *router)
{
    const struct kvr_envelope *envelope = router->envelope;
    struct kvr_gate_cover cover = {.role = KVR_ROLE_POLICY};
    uint32_t policy = kvr_envelope_compare(&envelope->candidate, info_of(router, KVR_ROLE_POLICY));
    uint32_t canary = kvr_envelope_compare(&envelope->candidate, info_of(router, KVR_ROLE_CANARY));
    if (canary == 0 || (policy & ~canary & KVR_ENVELOPE_NAME))
        cover.role = policy ? KVR_ROLE_CANARY : KVR_ROLE_POLICY;
    cover.policy = cover.role == KVR_ROLE_CANARY ? canary : policy;
    cover.spill = kvr_envelope_compare(&envelope->spill, info_of(router, KVR_ROLE_SPILL));
    cover.covers = !cover.policy && !cover.spill;
    return cover;
}

/* Of one script; returns how many characters. */
static int put_difference(char *at, size_t room, const char *what,
                          const struct kvr_envelope_script *judged,
                          const struct kvr_script_info *info, uint32_t differs)
{
    static const char *const parts[] = {[KVR_ENVELOPE_TEXT] = "its text differs",
                                        [KVR_ENVELOPE_PARAMS] = "its params differ",
                                        [KVR_ENVELOPE_TEXT | KVR_ENVELOPE_PARAMS] =
                                            "its text and params differ"};
    const char *gated = judged->name[0] ? judged->name : "none";
    if (!differs)
        return 0;
    if (differs & KVR_ENVELOPE_NAME)
        return snprintf(at, room, "%s is %s, not %s", what, info ? info->name : "none", gated);
    return snprintf(at, room, "%s %s: %s", what, gated, parts[differs]);
}

void kvr_gate_cover_words(const struct kvr_router *router, const struct kvr_gate_cover *cover,
                          char words[KVR_GATE_WORDS_MAX])
{
    const struct kvr_envelope *envelope = router->envelope;
    words[0] = '\0';
    int len = put_difference(words, KVR_GATE_WORDS_MAX, kvr_role_name(cover->role),
                             &envelope->candidate, info_of(router, cover->role), cover->policy);
    if (len && cover->spill)
        len += snprintf(words + len, KVR_GATE_WORDS_MAX - (size_t)len, "; ");
    len += put_difference(words + len, KVR_GATE_WORDS_MAX - (size_t)len, "spill rule",
                          &envelope->spill, info_of(router, KVR_ROLE_SPILL), cover->spill);
    KVR_CHECK(len < KVR_GATE_WORDS_MAX); /* four names, and few words */
}

void kvr_gate_scripts_changed(struct kvr_router *router)
{
    char words[KVR_GATE_WORDS_MAX];
    if (!router->envelope)
        return;
    struct kvr_gate_cover cover = kvr_gate_cover(router);
    bool lost = router->envelope->covers && !cover.covers;
    router->envelope->covers = cover.covers;
    if (!lost)
        return;
    kvr_gate_cover_words(router, &cover, words);
    kvr_log(KVR_LOG_WARN, "what acts is no longer what the gate of %s judged: %s",
            router->envelope->candidate.name, words);
}

/* ---- what happens ---- */

struct kvr_envelope *kvr_router_install_envelope(struct kvr_router *router,
                                                 struct kvr_envelope *envelope)
{
    struct kvr_envelope *before = router->envelope;
    router->envelope = envelope;
    if (envelope)
        envelope->covers = kvr_gate_cover(router).covers;
    router->queue.epoch++;
    kvr_shadow_scripts_changed(router);
    return before;
}

void kvr_gate_arrived(struct kvr_router *router, uint64_t now_ns, uint64_t routing_key)
{
    if (router->envelope)
        note(router, kvr_envelope_arrived(router->envelope, now_ns, routing_key));
}

void kvr_gate_answered(struct kvr_router *router, uint64_t now_ns,
                       const struct kvr_request_record *record, uint64_t ttft_ns)
{
    if (router->envelope && record->guarded && record->stream)
        note(router, kvr_envelope_answered(router->envelope, now_ns, KVR_ENVELOPE_STREAMS,
                                           ttft_ns > router->envelope->ttft_ns));
}

/* The most that an answer may take that comes whole. Where nobody has counted its tokens, it may
 * have had all that were asked for. */
static uint64_t most_ns(const struct kvr_envelope *envelope,
                        const struct kvr_request_record *record, const struct kvr_ending *ending)
{
    double tokens =
        ending->output_tokens >= 0 ? (double)ending->output_tokens : (double)record->max_tokens;
    return kvr_envelope_most_ns(envelope, tokens > 0 ? (uint64_t)fmin(tokens, TOKENS_MAX) : 0);
}

void kvr_gate_ended(struct kvr_router *router, uint64_t now_ns,
                    const struct kvr_request_record *record, const struct kvr_ending *ending)
{
    struct kvr_envelope *envelope = router->envelope;
    if (!envelope || !record->guarded || (record->stream && record->got_first_token))
        return;
    bool fault = ending->outcome == KVR_OUTCOME_DROPPED ||
                 (ending->outcome == KVR_OUTCOME_FAILED && ending->status >= 500);
    bool good = ending->outcome == KVR_OUTCOME_SUCCESS && !record->stream;
    uint64_t most = record->stream ? envelope->ttft_ns : most_ns(envelope, record, ending);
    bool late = fault || now_ns - record->received_ns > most;
    /* A client that left says nothing of an answer whose length nobody knows. */
    if (!record->stream && ending->outcome == KVR_OUTCOME_CANCELLED && !(record->max_tokens > 0))
        return;
    if (good || late)
        note(router, kvr_envelope_answered(
                         envelope, now_ns,
                         record->stream ? KVR_ENVELOPE_STREAMS : KVR_ENVELOPE_WHOLES, late));
}

void kvr_gate_tick(struct kvr_router *router, uint64_t now_ns)
{
    if (router->envelope)
        note(router, kvr_envelope_tick(router->envelope, now_ns));
}

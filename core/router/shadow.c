#include "shadow.h"

#include <string.h>

#include "decide.h"
#include "memory.h"
#include "opinion.h"

const char *kvr_verdict_name(enum kvr_verdict verdict)
{
    static const char *const names[] = {[KVR_VERDICT_PICK] = "pick",
                                        [KVR_VERDICT_NONE] = "none",
                                        [KVR_VERDICT_HOLD] = "hold",
                                        [KVR_VERDICT_REJECT] = "reject"};
    return names[verdict];
}

/* ---- what it would have done ---- */

static void write_answer(struct kvr_router *router, uint32_t i, const struct kvr_opinion *opinion,
                         struct kvr_shadow_answer *answer)
{
    const struct kvr_replica_view *rows = router->picture.rows;
    *answer = (struct kvr_shadow_answer){
        .policy = kvr_script_record_share(router->records[kvr_role_shadow(i)]),
        .verdict = opinion->verdict,
        .failed = opinion->policy_code != 0,
        .replica = KVR_NO_REPLICA,
        .preferred = KVR_NO_REPLICA,
    };
    if (answer->failed)
        return;
    if (opinion->spill_asked)
        answer->spill = kvr_script_record_share(router->records[kvr_role_shadow_spill(i)]);
    if (opinion->verdict != KVR_VERDICT_PICK)
        return;
    answer->replica = rows[opinion->index].id;
    answer->match_blocks = rows[opinion->index].match_blocks;
    answer->reason = opinion->reason;
    kvr_decide_hold(router, answer->replica);
    if (opinion->preferred == KVR_NO_ROW)
        return;
    answer->preferred = rows[opinion->preferred].id;
    kvr_decide_hold(router, answer->preferred);
}

void kvr_shadow_answers_release(struct kvr_router *router, struct kvr_shadow_answers *answers)
{
    for (uint32_t i = 0; i < answers->count; i++) {
        kvr_decide_release(router, answers->items[i].replica);
        kvr_decide_release(router, answers->items[i].preferred);
        kvr_script_record_release(answers->items[i].policy);
        kvr_script_record_release(answers->items[i].spill);
    }
    kvr_free(answers);
}

/* ---- counting ---- */

/* Both sides of one decision. A side that took no replica has the row KVR_NO_ROW. */
struct sides {
    uint32_t acting, shadow; /* rows */
    uint16_t acting_reason, shadow_reason;
    uint64_t prompt_tokens, acting_match_tokens, match_tokens;
    bool agreed, fallback, spilled;
};

static uint64_t whole(double tokens)
{
    return tokens > 0 ? (uint64_t)(tokens + 0.5) : 0;
}

static void compare(const struct kvr_router *router, const struct kvr_opinion *opinion,
                    struct sides *sides)
{
    const struct kvr_picture *picture = &router->picture;
    *sides = (struct sides){
        .acting = router->pending.index,
        .acting_reason = router->pending.reason,
        .shadow = opinion->verdict == KVR_VERDICT_PICK ? opinion->index : KVR_NO_ROW,
        .shadow_reason = opinion->verdict == KVR_VERDICT_PICK   ? opinion->reason
                         : opinion->verdict == KVR_VERDICT_HOLD ? router->reason_held
                                                                : router->reason_refused,
        .prompt_tokens = whole(picture->request.prompt_tokens),
        .fallback = opinion->fallback,
        .spilled = opinion->preferred != KVR_NO_ROW,
    };
    if (sides->acting != KVR_NO_ROW)
        sides->acting_match_tokens = whole(picture->rows[sides->acting].match_tokens);
    if (sides->shadow != KVR_NO_ROW)
        sides->match_tokens = whole(picture->rows[sides->shadow].match_tokens);
    /* What acted did not hold: such a request waits, and shadows are asked when it goes. */
    sides->agreed = sides->acting == sides->shadow && opinion->verdict != KVR_VERDICT_HOLD;
}

static void add_counts(struct kvr_shadow_counters *counters, const struct sides *sides)
{
    counters->evaluated++;
    counters->agreed += sides->agreed;
    counters->fallbacks += sides->fallback;
    counters->spilled += sides->spilled;
    counters->prompt_tokens += sides->prompt_tokens;
    counters->match_tokens += sides->match_tokens;
    counters->acting_match_tokens += sides->acting_match_tokens;
}

static void add_replicas(struct kvr_shadow *shadow, const struct kvr_router *router,
                         const struct sides *sides)
{
    const struct kvr_replica_view *rows = router->picture.rows;
    if (!shadow->replicas)
        shadow->replicas = kvr_alloc_zero(router->options.replicas_max, sizeof *shadow->replicas);
    if (sides->acting != KVR_NO_ROW) {
        shadow->replicas[rows[sides->acting].id].acting++;
        shadow->replicas[rows[sides->acting].id].agreed += sides->agreed;
    }
    if (sides->shadow != KVR_NO_ROW)
        shadow->replicas[rows[sides->shadow].id].shadow++;
}

static void add_pair(struct kvr_shadow *shadow, const struct sides *sides)
{
    uint32_t i = 0;
    while (i < shadow->pairs_count && (shadow->pairs[i].acting_reason != sides->acting_reason ||
                                       shadow->pairs[i].reason != sides->shadow_reason))
        i++;
    if (i == KVR_SHADOW_PAIRS_MAX) {
        shadow->pairs_other++;
        return;
    }
    struct kvr_shadow_pair *pair = &shadow->pairs[i];
    if (i == shadow->pairs_count) {
        shadow->pairs_count++;
        *pair = (struct kvr_shadow_pair){.acting_reason = sides->acting_reason,
                                         .reason = sides->shadow_reason};
    }
    pair->count++;
    pair->match_tokens += sides->match_tokens;
    pair->acting_match_tokens += sides->acting_match_tokens;
}

static void count(struct kvr_router *router, struct kvr_shadow *shadow,
                  const struct kvr_opinion *opinion)
{
    if (shadow->first_ns == 0)
        shadow->first_ns = router->pending.now_ns;
    if (opinion->policy_code) {
        shadow->totals.failed++;
        shadow->now.failed++;
        return;
    }
    struct sides sides;
    compare(router, opinion, &sides);
    add_counts(&shadow->totals, &sides);
    add_counts(&shadow->now, &sides);
    add_replicas(shadow, router, &sides);
    if (!sides.agreed)
        add_pair(shadow, &sides);
}

void kvr_shadow_look(struct kvr_router *router)
{
    struct kvr_request_record *record = kvr_request_at(&router->requests, router->pending.request);
    struct kvr_shadow_answers *answers = NULL;
    for (uint32_t i = 0; i < KVR_SHADOWS_MAX; i++) {
        const struct kvr_script_record *script = router->records[kvr_role_shadow(i)];
        const struct kvr_script_record *spill = router->records[kvr_role_shadow_spill(i)];
        uint32_t needs = script ? script->info.needs | (spill ? spill->info.needs : 0) : 0;
        /* One that was loaded after the view was filled may miss columns in it. */
        if (!script || (needs & ~router->pending.needs))
            continue;
        struct kvr_opinion opinion;
        kvr_opinion_form(router, kvr_role_shadow(i), &opinion);
        count(router, &router->shadows[i], &opinion);
        if (!answers)
            answers = kvr_alloc_zero(1, sizeof *answers);
        write_answer(router, i, &opinion, &answers->items[answers->count++]);
    }
    KVR_CHECK(!record->shadows);
    record->shadows = answers;
}

/* ---- what is compared ---- */

static void begin_anew(struct kvr_shadow *shadow)
{
    shadow->now = (struct kvr_shadow_counters){0};
    shadow->first_ns = 0;
    shadow->pairs_count = 0;
    shadow->pairs_other = 0;
    kvr_free(shadow->replicas);
    shadow->replicas = NULL;
}

void kvr_shadow_scripts_changed(struct kvr_router *router)
{
    router->shadowing = false;
    for (uint32_t i = 0; i < KVR_SHADOWS_MAX; i++) {
        struct kvr_shadow *shadow = &router->shadows[i];
        const enum kvr_script_role roles[] = {KVR_ROLE_POLICY,    KVR_ROLE_SPILL,
                                              KVR_ROLE_CANARY,    KVR_ROLE_BASELINE,
                                              kvr_role_shadow(i), kvr_role_shadow_spill(i)};
        uint32_t generations[KVR_ROLES] = {0};
        for (size_t k = 0; k < sizeof roles / sizeof roles[0]; k++) {
            const struct kvr_script_record *record = router->records[roles[k]];
            generations[roles[k]] = record ? record->info.generation : 0;
        }
        if (!(router->envelope && router->envelope->left)) /* the baseline does not act */
            generations[KVR_ROLE_BASELINE] = 0;
        if (memcmp(generations, shadow->generations, sizeof generations) != 0)
            begin_anew(shadow);
        memcpy(shadow->generations, generations, sizeof generations);
        router->shadowing |= router->records[kvr_role_shadow(i)] != NULL;
    }
}

void kvr_shadow_forget_replica(struct kvr_router *router, uint32_t slot)
{
    for (uint32_t i = 0; i < KVR_SHADOWS_MAX; i++)
        if (router->shadows[i].replicas)
            router->shadows[i].replicas[slot] = (struct kvr_shadow_replica){0};
}

void kvr_shadow_deinit(struct kvr_shadow *shadow)
{
    kvr_free(shadow->replicas);
    *shadow = (struct kvr_shadow){0};
}

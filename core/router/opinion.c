#include "opinion.h"

#include "check.h"
#include "decide.h"

/* What the policy says, or C in its place. */
static void ask_policy(struct kvr_router *router, enum kvr_script_role policy,
                       struct kvr_opinion *opinion)
{
    struct kvr_decision decision = {.verdict = KVR_VERDICT_NONE};
    int rc = kvr_slot_pick(router->slots[policy], &decision);
    opinion->policy_code = rc;
    opinion->said = rc ? KVR_VERDICT_NONE : decision.verdict;
    opinion->verdict = opinion->said;
    opinion->index = decision.index;
    opinion->reason = decision.reason;
    opinion->affine = decision.affine;
    /* Without a queue nobody can wait: HOLD is then no opinion. */
    bool hold = opinion->said == KVR_VERDICT_HOLD && router->queue.options.max;
    if (opinion->said == KVR_VERDICT_PICK || opinion->said == KVR_VERDICT_REJECT || hold)
        return;
    const struct kvr_picture *picture = &router->picture;
    opinion->verdict = KVR_VERDICT_PICK;
    opinion->index = kvr_fallback_pick(&picture->view, picture->request.serial);
    opinion->reason = router->reason_fallback;
    opinion->affine = false;
    opinion->fallback = true;
}

/* The spill rule looks at what the policy chose for its cache, and may send it elsewhere. */
static void ask_spill(struct kvr_slot *spill, struct kvr_opinion *opinion)
{
    if (!kvr_slot_info(spill))
        return;
    struct kvr_decision answer = {.verdict = KVR_VERDICT_NONE};
    opinion->spill_asked = true;
    opinion->spill_code = kvr_slot_spill(spill, opinion->index, &answer);
    if (opinion->spill_code || answer.verdict != KVR_VERDICT_PICK || answer.index == opinion->index)
        return;
    opinion->preferred = opinion->index;
    opinion->preferred_reason = opinion->reason;
    opinion->index = answer.index;
    opinion->reason = answer.reason;
}

void kvr_opinion_form(struct kvr_router *router, enum kvr_script_role policy,
                      struct kvr_opinion *opinion)
{
    KVR_CHECK(router->picture.view.available > 0);
    *opinion = (struct kvr_opinion){.preferred = KVR_NO_ROW};
    ask_policy(router, policy, opinion);
    if (opinion->verdict == KVR_VERDICT_PICK && opinion->affine)
        ask_spill(router->slots[kvr_role_spill(policy)], opinion);
    KVR_CHECK(opinion->verdict != KVR_VERDICT_PICK || opinion->index < router->picture.view.count);
}

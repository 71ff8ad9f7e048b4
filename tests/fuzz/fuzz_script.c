/* Texts of policies and spill rules, put in force. Input: one byte for the kind, one of choices,
 * the text; behind a NUL, a second text that replaces it.
 *
 * Loading ends, within memory; a refusal says why and leaves what was in force; what is in force
 * answers with an available row or not at all. There is no guard here: what is called is what has
 * been checked, on a picture like those of the check. */
#include "fuzz.h"

#include <math.h>

#include "log.h"
#include "slot.h"
#include "stage.h"

enum choices { PARAMS = 1, LITTLE_MEMORY = 2, LEAST_MEMORY = 4, MANY_PARAMS = 8, RELOAD = 16 };

#define LITTLE (400u << 10)
#define LEAST  (20u << 10) /* not enough for anything */

/* A few decisions on the canned pictures. */
static void decide(struct kvr_slot *slot, struct kvr_stage *stage, enum kvr_script_kind kind)
{
    for (uint32_t step = 0; step < KVR_STAGE_STEPS; step += 3) {
        struct kvr_decision decision;
        kvr_stage_show(stage, step);
        const struct kvr_view *view = &stage->picture.view;
        uint32_t preferred = 0;
        while (preferred < view->count && !stage->picture.rows[preferred].available)
            preferred++;
        if (kind == KVR_SCRIPT_SPILL && preferred == view->count)
            continue;
        int rc = kind == KVR_SCRIPT_SPILL ? kvr_slot_spill(slot, preferred, &decision)
                                          : kvr_slot_pick(slot, &decision);
        if (rc == 0 && decision.verdict == KVR_VERDICT_PICK)
            FUZZ_CHECK(decision.index < view->count &&
                       stage->picture.rows[decision.index].available);
        if (rc)
            FUZZ_CHECK(kvr_slot_last_error(slot)[0] != '\0');
    }
    kvr_stage_observe(stage, 2);
    kvr_slot_observe(slot);
}

static void load(struct kvr_slot *slot, struct kvr_slice text, unsigned choices)
{
    static const struct kvr_script_param few[] = {
        {{"eps", 3}, {"0.5", 3}},
        {{"on", 2}, {"true", 4}},
        {{"eps", 3}, {"0.25", 4}},
    };
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    struct kvr_script_param many[40];
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        many[i] = (struct kvr_script_param){{&letters[i], 1}, {"1", 1}};
    const struct kvr_script_param *params = choices & MANY_PARAMS ? many : few;
    uint32_t count = choices & MANY_PARAMS ? 40 : choices & PARAMS ? 3 : 0;
    struct kvr_error error = {0};
    const struct kvr_script_info *info = kvr_slot_info(slot);
    uint32_t generation = info ? info->generation : 0;
    bool reload = (choices & RELOAD) && info;
    int rc = reload ? kvr_slot_reload(slot, text, &error)
                    : kvr_slot_load(slot, kvr_slice_of(""), kvr_slice_of("policies/fuzz.lua"), text,
                                    params, count, &error);
    info = kvr_slot_info(slot);
    FUZZ_CHECK((rc == 0) == (error.text[0] == '\0'));
    FUZZ_CHECK((rc == 0) == (kvr_slot_last_error(slot)[0] == '\0'));
    for (const char *at = error.text; *at; at++)
        FUZZ_CHECK((unsigned char)*at >= 0x20); /* no line of the log is forged */
    if (rc == 0)
        FUZZ_CHECK(info && info->name[0] && info->generation <= generation + 1);
    else
        FUZZ_CHECK((info ? info->generation : 0) == generation);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    enum kvr_script_kind kind = fuzz_byte(&input) % 2 ? KVR_SCRIPT_SPILL : KVR_SCRIPT_POLICY;
    unsigned choices = fuzz_byte(&input);
    char *bytes = fuzz_rest(&input);
    const char *nul = input.left ? memchr(bytes, '\0', input.left) : NULL;
    size_t len = nul ? (size_t)(nul - bytes) : input.left;
    struct kvr_stage stage;
    kvr_log_set_level(KVR_LOG_ERROR);
    kvr_stage_init(&stage);
    struct kvr_slot *slot = kvr_slot_create(kind, &stage.picture, 7);
    if (choices & (LITTLE_MEMORY | LEAST_MEMORY))
        kvr_slot_limit_memory(slot, choices & LEAST_MEMORY ? LEAST : LITTLE);
    load(slot, kvr_slice_make(bytes, len), choices);
    if (kvr_slot_info(slot)) {
        decide(slot, &stage, kind);
        FUZZ_CHECK(kvr_slot_memory(slot) > 0 || kvr_slot_quarantined(slot));
        const struct kvr_script_counters *counters = kvr_slot_counters(slot);
        FUZZ_CHECK(counters->loads == 1 && counters->refusals == 0 && counters->calls > 0);
        load(slot, kvr_slice_make(bytes, len), choices);
        if (nul)
            load(slot, kvr_slice_make(nul + 1, input.left - len - 1), choices);
        struct kvr_script_param param = {{"spill", 5}, {"off", 3}};
        struct kvr_error error = {0};
        int rc = kvr_slot_set_params(slot, &param, 1, &error);
        FUZZ_CHECK((rc == 0) == (error.text[0] == '\0'));
    }
    kvr_slot_destroy(slot);
    kvr_stage_deinit(&stage);
    free(bytes);
    return 0;
}

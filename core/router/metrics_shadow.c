/* The part of metrics_text.h that is about shadows. A shadow has samples from its first load on. */
#include "metrics_text.h"

struct shadow_family {
    const char *name;
    const char *help;
    uint64_t (*read)(const struct kvr_shadow_counters *counters);
};

static uint64_t read_spilled(const struct kvr_shadow_counters *counters)
{
    return counters->spilled;
}

static uint64_t read_prompt(const struct kvr_shadow_counters *counters)
{
    return counters->prompt_tokens;
}

static uint64_t read_match(const struct kvr_shadow_counters *counters)
{
    return counters->match_tokens;
}

static uint64_t read_acting_match(const struct kvr_shadow_counters *counters)
{
    return counters->acting_match_tokens;
}

static const struct shadow_family families[] = {
    {"shadow_spills_total", "Picks of the shadow that its own spill rule declined.", read_spilled},
    {"shadow_prompt_tokens_total", "Estimated prompt tokens of the decisions it was asked about.",
     read_prompt},
    {"shadow_match_tokens_total",
     "Of those, believed to be cached where the shadow would have sent them.", read_match},
    {"shadow_acting_match_tokens_total", "Of those, believed to be cached where they were sent.",
     read_acting_match},
};

static bool is_told(const struct kvr_router *router, uint32_t i)
{
    return kvr_slot_counters(router->slots[kvr_role_shadow(i)])->loads > 0;
}

static void write_role(struct kvr_prom_writer *prom, uint32_t i)
{
    kvr_prom_label(prom, "role", kvr_slice_of(kvr_role_name(kvr_role_shadow(i))));
}

void kvr_metrics_text_shadows(const struct kvr_router *router, struct kvr_prom_writer *prom)
{
    kvr_prom_family(prom, "shadow_decisions_total", KVR_PROM_COUNTER,
                    "Decisions that a shadow was asked about, by whether it would have done the "
                    "same.");
    for (uint32_t i = 0; i < KVR_SHADOWS_MAX; i++) {
        const struct kvr_shadow_counters *counters = &router->shadows[i].totals;
        const struct {
            const char *verdict;
            uint64_t count;
        } verdicts[] = {{"agreed", counters->agreed},
                        {"disagreed", counters->evaluated - counters->agreed},
                        {"failed", counters->failed}};
        for (size_t k = 0; is_told(router, i) && k < sizeof verdicts / sizeof verdicts[0]; k++) {
            write_role(prom, i);
            kvr_prom_label(prom, "verdict", kvr_slice_of(verdicts[k].verdict));
            kvr_prom_uint(prom, verdicts[k].count);
        }
    }
    for (size_t k = 0; k < sizeof families / sizeof families[0]; k++) {
        kvr_prom_family(prom, families[k].name, KVR_PROM_COUNTER, families[k].help);
        for (uint32_t i = 0; i < KVR_SHADOWS_MAX; i++) {
            if (!is_told(router, i))
                continue;
            write_role(prom, i);
            kvr_prom_uint(prom, families[k].read(&router->shadows[i].totals));
        }
    }
}

/* The part of metrics_text.h that is about scripts. */
#include "guard.h"
#include "metrics_text.h"

static void write_role(struct kvr_prom_writer *prom, int role)
{
    kvr_prom_label(prom, "role", kvr_slice_of(kvr_role_name((enum kvr_script_role)role)));
}

/* Shadows and baselines have samples from their first load on: most fleets have none. */
static bool is_told(const struct kvr_router *router, int role)
{
    return role <= KVR_ROLE_CANARY || kvr_slot_counters(router->slots[role])->loads;
}

static void write_in_force(const struct kvr_router *router, struct kvr_prom_writer *prom)
{
    kvr_prom_family(prom, "script_generation", KVR_PROM_GAUGE,
                    "Generation of the script in force, by role; no sample: none is.");
    for (int role = 0; role < KVR_ROLES; role++) {
        const struct kvr_script_info *info = kvr_slot_info(router->slots[role]);
        if (!info)
            continue;
        write_role(prom, role);
        kvr_prom_label(prom, "name", kvr_slice_of(info->name));
        kvr_prom_uint(prom, info->generation);
    }
    kvr_prom_family(prom, "script_quarantined", KVR_PROM_GAUGE,
                    "1 when the script failed too often and decides nothing until its next load.");
    for (int role = 0; role < KVR_ROLES; role++) {
        if (!is_told(router, role))
            continue;
        write_role(prom, role);
        kvr_prom_uint(prom, kvr_slot_quarantined(router->slots[role]));
    }
    kvr_prom_family(prom, "script_memory_bytes", KVR_PROM_GAUGE, "Lua heap of the script.");
    for (int role = 0; role < KVR_ROLES; role++) {
        if (!is_told(router, role))
            continue;
        write_role(prom, role);
        kvr_prom_uint(prom, kvr_slot_memory(router->slots[role]));
    }
}

struct script_family {
    const char *name;
    const char *help;
    uint64_t (*read)(const struct kvr_script_counters *counters);
};

static uint64_t read_calls(const struct kvr_script_counters *counters)
{
    return counters->calls;
}

static uint64_t read_loads(const struct kvr_script_counters *counters)
{
    return counters->loads;
}

static uint64_t read_refusals(const struct kvr_script_counters *counters)
{
    return counters->refusals;
}

static uint64_t read_quarantines(const struct kvr_script_counters *counters)
{
    return counters->quarantines;
}

static const struct script_family script_families[] = {
    {"script_calls_total", "Calls of the script.", read_calls},
    {"script_loads_total", "Generations put in force.", read_loads},
    {"script_refusals_total", "Texts refused; what was in force stayed.", read_refusals},
    {"script_quarantines_total", "Times the script was put out of use.", read_quarantines},
};

static void write_failures(const struct kvr_router *router, struct kvr_prom_writer *prom)
{
    kvr_prom_family(prom, "script_failures_total", KVR_PROM_COUNTER,
                    "Calls that went wrong, by role and kind.");
    for (int role = 0; role < KVR_ROLES; role++) {
        if (!is_told(router, role))
            continue;
        const struct kvr_script_counters *counters = kvr_slot_counters(router->slots[role]);
        const struct {
            const char *kind;
            uint64_t count;
        } kinds[] = {{"error", counters->errors},
                     {"bad_result", counters->bad_results},
                     {"slow", counters->slow},
                     {"runaway", counters->runaways},
                     {"memory", counters->memory}};
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            write_role(prom, role);
            kvr_prom_label(prom, "kind", kvr_slice_of(kinds[i].kind));
            kvr_prom_uint(prom, kinds[i].count);
        }
    }
}

void kvr_metrics_text_scripts(const struct kvr_router *router, struct kvr_prom_writer *prom)
{
    write_in_force(router, prom);
    for (size_t i = 0; i < sizeof script_families / sizeof script_families[0]; i++) {
        kvr_prom_family(prom, script_families[i].name, KVR_PROM_COUNTER, script_families[i].help);
        for (int role = 0; role < KVR_ROLES; role++) {
            if (!is_told(router, role))
                continue;
            write_role(prom, role);
            kvr_prom_uint(prom, script_families[i].read(kvr_slot_counters(router->slots[role])));
        }
    }
    write_failures(router, prom);
    kvr_prom_gauge(prom, "script_abandoned_vms", kvr_guard_abandoned(),
                   "Lua VMs left behind by calls that did not end.");
    kvr_prom_gauge(prom, "script_abandoned_vms_limit", KVR_ABANDONED_MAX,
                   "Such VMs after which Lua stays off until a restart.");
}

/* Calls of the script in force, and what their failures lead to. */
#include "slot_state.h"

#include <stdio.h>

#include "guard.h"
#include "log.h"

#define LOG_LINES_MAX  20 /* of one generation; after them, one in LOG_LINE_EVERY calls */
#define LOG_LINE_EVERY 1000

static void quarantine(struct kvr_slot *slot)
{
    slot->quarantined = true;
    slot->counters.quarantines++;
    kvr_log(KVR_LOG_ERROR, "%s %s generation %u is quarantined, until a repaired file is saved: %s",
            slot->role, slot->script->info.name, slot->script->info.generation, slot->last_error);
}

/* One more failure at this call; quarantines when the ring holds KVR_FAILURES_MAX recent ones. The
 * first of a text is logged: one that fails now and then never comes into quarantine. */
static void count_failure(struct kvr_slot *slot)
{
    bool is_first =
        slot->failures[(slot->failures_at + KVR_FAILURES_MAX - 1) % KVR_FAILURES_MAX] == 0;
    if (is_first && kvr_guard_active())
        kvr_log(KVR_LOG_WARN, "%s %s generation %u failed, more failures are only counted: %s",
                slot->role, slot->script->info.name, slot->script->info.generation,
                slot->last_error);
    slot->failures[slot->failures_at] = slot->calls;
    slot->failures_at = (slot->failures_at + 1) % KVR_FAILURES_MAX;
    /* The ring holds KVR_FAILURES_MAX - 1 failures after the oldest, and this one. */
    uint64_t first = slot->failures[slot->failures_at];
    if (first && slot->calls - first < KVR_FAILURES_CALLS && !slot->quarantined)
        quarantine(slot);
}

/* A heap that hit its cap may be half changed: the script starts afresh. */
static void restart(struct kvr_slot *slot)
{
    struct kvr_script_source source = {slot->kind,
                                       kvr_slice_of(slot->script->info.name),
                                       kvr_slice_of(slot->script->info.path),
                                       kvr_buffer_slice(&slot->text),
                                       slot->overrides.list,
                                       slot->overrides.count};
    struct kvr_vm_options options = kvr_slot_vm_options(slot);
    struct kvr_error error;
    struct kvr_script *fresh = kvr_script_create(&source, &options, &error);
    if (!fresh) {
        snprintf(slot->last_error, sizeof slot->last_error, "%s", error.text);
        quarantine(slot);
        return;
    }
    fresh->info.generation = slot->script->info.generation;
    kvr_script_destroy(slot->script);
    slot->script = fresh;
}

static void on_failure(struct kvr_slot *slot, int rc)
{
    struct kvr_script *script = slot->script;
    snprintf(slot->last_error, sizeof slot->last_error, "%s", script->vm->error);
    if (rc == KVR_E_RUNAWAY) {
        slot->counters.runaways++;
        script->vm = NULL;
        quarantine(slot);
        return;
    }
    if (rc == KVR_E_LIMIT)
        slot->counters.memory++;
    else if (rc == KVR_E_INVALID)
        slot->counters.bad_results++;
    else
        slot->counters.errors++;
    count_failure(slot);
    if (rc == KVR_E_LIMIT && !slot->quarantined)
        restart(slot);
}

static void print_log(struct kvr_slot *slot)
{
    struct kvr_vm *vm = slot->script->vm;
    bool print = slot->log_lines < LOG_LINES_MAX || slot->calls - slot->log_call >= LOG_LINE_EVERY;
    if (print) {
        kvr_log(KVR_LOG_INFO, "%s %s: %s", slot->role, slot->script->info.name, vm->log_text);
        slot->log_lines++;
        slot->log_call = slot->calls;
    }
    vm->log_lines = 0;
}

static int decide(struct kvr_slot *slot, uint32_t preferred, struct kvr_decision *decision)
{
    int rc = kvr_script_decide(slot->script, preferred, decision);
    if (rc)
        on_failure(slot, rc);
    else if (slot->script->vm->log_lines)
        print_log(slot);
    return rc;
}

static int timed_decide(struct kvr_slot *slot, uint32_t preferred, struct kvr_decision *decision)
{
    kvr_stopwatch_start(&slot->stopwatch);
    int rc = decide(slot, preferred, decision);
    if (kvr_stopwatch_stop(&slot->stopwatch) && rc == 0) {
        slot->counters.slow++;
        snprintf(slot->last_error, sizeof slot->last_error, "%s: a call took more than 1 ms of CPU",
                 slot->script->shown);
        count_failure(slot);
    }
    return rc;
}

static int call(struct kvr_slot *slot, uint32_t preferred, struct kvr_decision *decision)
{
    if (!slot->script) {
        *decision = (struct kvr_decision){.verdict = KVR_VERDICT_NONE};
        return 0;
    }
    if (slot->quarantined || kvr_guard_exhausted())
        return KVR_E_STATE;
    slot->calls++;
    slot->counters.calls++;
    /* A simulation runs unguarded and must not depend on how fast the machine is. */
    return kvr_guard_active() ? timed_decide(slot, preferred, decision)
                              : decide(slot, preferred, decision);
}

int kvr_slot_pick(struct kvr_slot *slot, struct kvr_decision *decision)
{
    KVR_CHECK(slot->kind == KVR_SCRIPT_POLICY);
    return call(slot, 0, decision);
}

int kvr_slot_spill(struct kvr_slot *slot, uint32_t preferred, struct kvr_decision *decision)
{
    KVR_CHECK(slot->kind == KVR_SCRIPT_SPILL && preferred < slot->picture->view.count);
    return call(slot, preferred, decision);
}

void kvr_slot_observe(struct kvr_slot *slot)
{
    if (!slot->script || slot->quarantined || !slot->script->info.observes || kvr_guard_exhausted())
        return;
    slot->calls++;
    int rc = kvr_script_observe(slot->script);
    if (rc)
        on_failure(slot, rc);
}

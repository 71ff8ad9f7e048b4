#include "slot.h"

#include <stdio.h>
#include <time.h>

#include "guard.h"
#include "log.h"
#include "memory.h"
#include "overrides.h"
#include "script.h"
#include "script_check.h"

#define LOG_LINES_MAX  20 /* of one generation; after them, one in LOG_LINE_EVERY calls */
#define LOG_LINE_EVERY 1000

struct kvr_slot {
    enum kvr_script_kind kind;
    struct kvr_picture *picture; /* the router's */
    uint64_t seed;
    size_t memory_bytes;
    struct kvr_script *script;      /* in force; NULL: none */
    struct kvr_buffer text;         /* of what is in force */
    struct kvr_overrides overrides; /* of what is in force */
    uint32_t generation;
    bool quarantined;
    uint64_t calls;                      /* of all functions */
    uint64_t failures[KVR_FAILURES_MAX]; /* the last ones, by call number, as a ring */
    uint32_t failures_at;
    uint64_t log_lines;     /* printed for this generation */
    uint64_t log_call;      /* of the last one */
    uint64_t precise_until; /* call number: until then CPU time is read, see timed_call */
    struct kvr_script_counters counters;
    char last_error[KVR_ERROR_TEXT_MAX];
};

static const char *kind_name(const struct kvr_slot *slot)
{
    return slot->kind == KVR_SCRIPT_POLICY ? "policy" : "spill";
}

struct kvr_slot *kvr_slot_create(enum kvr_script_kind kind, struct kvr_picture *picture,
                                 uint64_t seed)
{
    struct kvr_slot *slot = kvr_alloc_zero(1, sizeof *slot);
    slot->kind = kind;
    slot->picture = picture;
    slot->seed = seed;
    return slot;
}

void kvr_slot_destroy(struct kvr_slot *slot)
{
    kvr_slot_clear(slot);
    kvr_free(slot);
}

void kvr_slot_limit_memory(struct kvr_slot *slot, size_t bytes)
{
    slot->memory_bytes = bytes;
}

void kvr_slot_clear(struct kvr_slot *slot)
{
    kvr_script_destroy(slot->script);
    slot->script = NULL;
    slot->quarantined = false;
    kvr_buffer_deinit(&slot->text);
    kvr_overrides_deinit(&slot->overrides);
}

/* ---- loading --------------------------------------------------------------------------------- */

static struct kvr_vm_options live_options(const struct kvr_slot *slot)
{
    /* A generation must not repeat the numbers of the one before. */
    return (struct kvr_vm_options){.picture = slot->picture,
                                   .seed = slot->seed + kvr_mix64(slot->generation + 1),
                                   .memory_bytes = slot->memory_bytes};
}

/* What the old generation has learned, for the new one. A failure to export loses it, but does not
 * keep a repaired text out; a failure to import refuses the new text. */
static int hand_over(struct kvr_slot *slot, struct kvr_script *next, struct kvr_error *error)
{
    struct kvr_script *old = slot->script;
    if (!old || !old->vm || !next->imports)
        return 0;
    struct kvr_buffer state = {0};
    int rc = kvr_script_export(old, &state);
    if (rc) {
        kvr_log(KVR_LOG_WARN, "%s %s: nothing is handed over: %s", kind_name(slot), old->info.name,
                old->vm->error);
        state.len = 0;
        if (rc == KVR_E_RUNAWAY)
            old->vm = NULL;
    }
    rc = kvr_script_import(next, kvr_buffer_slice(&state));
    if (rc)
        kvr_error_set(error, rc, "%s", next->vm->error);
    kvr_buffer_deinit(&state);
    return rc;
}

static void put_in_force(struct kvr_slot *slot, struct kvr_script *next)
{
    kvr_script_destroy(slot->script);
    slot->script = next;
    next->info.generation = ++slot->generation;
    slot->quarantined = false;
    slot->failures_at = 0;
    memset(slot->failures, 0, sizeof slot->failures);
    slot->log_lines = 0;
    slot->last_error[0] = '\0';
    slot->counters.loads++;
}

static int refuse(struct kvr_slot *slot, int rc, const struct kvr_error *error)
{
    slot->counters.refusals++;
    snprintf(slot->last_error, sizeof slot->last_error, "%s", error->text);
    return rc;
}

static int load(struct kvr_slot *slot, const struct kvr_script_source *source,
                struct kvr_error *error)
{
    int rc = kvr_script_check(source, slot->memory_bytes, error);
    if (rc)
        return refuse(slot, rc, error);
    struct kvr_vm_options options = live_options(slot);
    struct kvr_script *next = kvr_script_create(source, &options, error);
    if (!next)
        return refuse(slot, KVR_E_SCRIPT, error);
    rc = hand_over(slot, next, error);
    if (rc) {
        kvr_script_destroy(next);
        return refuse(slot, rc, error);
    }
    put_in_force(slot, next);
    return 0;
}

static bool in_force(const struct kvr_slot *slot, struct kvr_slice name, struct kvr_slice text,
                     const struct kvr_overrides *overrides)
{
    return slot->script && !slot->quarantined && slot->script->vm &&
           (name.len == 0 || kvr_slice_is(name, slot->script->info.name)) &&
           kvr_slice_equal(text, kvr_buffer_slice(&slot->text)) &&
           kvr_overrides_equal(overrides, &slot->overrides);
}

/* Takes over `overrides` on success, drops them otherwise. */
static int load_with(struct kvr_slot *slot, struct kvr_slice name, struct kvr_slice path,
                     struct kvr_slice text, struct kvr_overrides *overrides,
                     struct kvr_error *error)
{
    if (in_force(slot, name, text, overrides)) {
        slot->last_error[0] = '\0';
        kvr_overrides_deinit(overrides);
        return 0;
    }
    struct kvr_script_source source = {slot->kind,      name, path, text, overrides->list,
                                       overrides->count};
    int rc = load(slot, &source, error);
    if (rc) {
        kvr_overrides_deinit(overrides);
        return rc;
    }
    struct kvr_buffer copy = {0};
    kvr_buffer_append_slice(&copy, text); /* `text` may be slot->text itself */
    kvr_buffer_deinit(&slot->text);
    slot->text = copy;
    kvr_overrides_deinit(&slot->overrides);
    slot->overrides = *overrides;
    return 0;
}

int kvr_slot_load(struct kvr_slot *slot, struct kvr_slice name, struct kvr_slice path,
                  struct kvr_slice text, const struct kvr_script_param *params,
                  uint32_t params_count, struct kvr_error *error)
{
    struct kvr_error local;
    struct kvr_overrides overrides = {.count = 0};
    error = error ? error : &local;
    int rc = kvr_overrides_merge(&overrides, params, params_count, error);
    if (rc) {
        kvr_overrides_deinit(&overrides);
        return refuse(slot, rc, error);
    }
    return load_with(slot, name, path, text, &overrides, error);
}

/* The names are copied: a load that succeeds frees the info that they stand in. */
static int load_same(struct kvr_slot *slot, struct kvr_slice text,
                     const struct kvr_script_param *params, uint32_t params_count,
                     struct kvr_error *error)
{
    struct kvr_error local;
    struct kvr_overrides overrides = {.count = 0};
    error = error ? error : &local;
    if (!slot->script)
        return kvr_error_set(error, KVR_E_STATE, "no %s is in force", kind_name(slot));
    int rc = kvr_overrides_merge(&overrides, slot->overrides.list, slot->overrides.count, error);
    if (!rc)
        rc = kvr_overrides_merge(&overrides, params, params_count, error);
    if (rc) {
        kvr_overrides_deinit(&overrides);
        return refuse(slot, rc, error);
    }
    char name[KVR_SCRIPT_NAME_MAX];
    char path[KVR_SCRIPT_PATH_MAX];
    memcpy(name, slot->script->info.name, sizeof name);
    memcpy(path, slot->script->info.path, sizeof path);
    return load_with(slot, kvr_slice_of(name), kvr_slice_of(path), text, &overrides, error);
}

int kvr_slot_reload(struct kvr_slot *slot, struct kvr_slice text, struct kvr_error *error)
{
    return load_same(slot, text, NULL, 0, error);
}

int kvr_slot_set_params(struct kvr_slot *slot, const struct kvr_script_param *params,
                        uint32_t params_count, struct kvr_error *error)
{
    return load_same(slot, kvr_buffer_slice(&slot->text), params, params_count, error);
}

/* ---- what others see ------------------------------------------------------------------------- */

const struct kvr_script_info *kvr_slot_info(const struct kvr_slot *slot)
{
    return slot->script ? &slot->script->info : NULL;
}

const struct kvr_script_counters *kvr_slot_counters(const struct kvr_slot *slot)
{
    return &slot->counters;
}

const char *kvr_slot_last_error(const struct kvr_slot *slot)
{
    return slot->last_error;
}

bool kvr_slot_quarantined(const struct kvr_slot *slot)
{
    return slot->quarantined;
}

size_t kvr_slot_memory(const struct kvr_slot *slot)
{
    return slot->script && slot->script->vm ? slot->script->vm->bytes : 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void quarantine(struct kvr_slot *slot)
{
    slot->quarantined = true;
    slot->counters.quarantines++;
    kvr_log(KVR_LOG_ERROR, "%s %s generation %u is quarantined until its next good load: %s",
            kind_name(slot), slot->script->info.name, slot->script->info.generation,
            slot->last_error);
}

/* One more failure at this call; quarantines when the ring holds KVR_FAILURES_MAX recent ones. */
static void count_failure(struct kvr_slot *slot)
{
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
    struct kvr_vm_options options = live_options(slot);
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
        kvr_log(KVR_LOG_INFO, "%s %s: %s", kind_name(slot), slot->script->info.name, vm->log_text);
        slot->log_lines++;
        slot->log_call = slot->calls;
    }
    vm->log_lines = 0;
}

/* A clock for one purpose, to tell that a call took surely less than 1 ms: two reads of it cost a
 * tenth of two of the system's. Ticks come at 1 to 4 GHz on x86. */
#if defined(__x86_64__)
#define TICKS_SUSPECT 1000000u
static inline uint64_t ticks(void)
{
    return __builtin_ia32_rdtsc();
}
#else
#define TICKS_SUSPECT 900000u
static inline uint64_t ticks(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
#endif

static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#define SLOW_NS       1000000u
#define PRECISE_CALLS 1000u

static int decide(struct kvr_slot *slot, uint32_t preferred, struct kvr_decision *decision)
{
    int rc = kvr_script_decide(slot->script, preferred, decision);
    if (rc)
        on_failure(slot, rc);
    else if (slot->script->vm->log_lines)
        print_log(slot);
    return rc;
}

/* Slow is a matter of CPU time, since on a busy machine any call may be interrupted for long; but
 * reading that costs more than a decision. So a call that looks slow by ticks starts a time in
 * which CPU time is read. */
static int timed_decide(struct kvr_slot *slot, uint32_t preferred, struct kvr_decision *decision)
{
    bool precise = slot->calls < slot->precise_until;
    uint64_t cpu_start = precise ? cpu_ns() : 0;
    uint64_t start = ticks();
    int rc = decide(slot, preferred, decision);
    if (ticks() - start < TICKS_SUSPECT)
        return rc;
    slot->precise_until = slot->calls + PRECISE_CALLS;
    if (rc == 0 && precise && cpu_ns() - cpu_start > SLOW_NS) {
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

/* The commands of admin.h about the plan of routing keys, and its metrics. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "admin_call.h"

/* ---- what there is ---- */

static double seconds_since(uint64_t now_ns, uint64_t since_ns)
{
    uint64_t ms = now_ns > since_ns ? (now_ns - since_ns) / 1000000 : 0;
    return (double)ms / 1e3;
}

static const struct kvr_replica *find_member(const struct kvr_router *router, uint64_t id)
{
    for (uint32_t i = 0; i < router->replicas.end; i++)
        if (router->replicas.slots[i].member && router->replicas.slots[i].id == id)
            return &router->replicas.slots[i];
    return NULL;
}

static void write_destinations(struct kvr_json_writer *json, const struct kvr_ingress *ingress)
{
    const struct kvr_router *router = &ingress->router;
    kvr_json_array_begin(json, "destinations");
    for (uint32_t i = 0; i < router->plan->destinations; i++) {
        const struct kvr_replica *replica = find_member(router, router->plan_replicas[i]);
        kvr_json_object_begin(json, NULL);
        kvr_json_hex64(json, "id", router->plan_replicas[i]);
        if (replica) {
            kvr_json_text(json, "replica", replica->name);
            kvr_json_double(json, "weight", replica->weight);
            kvr_json_bool(json, "in_rotation", kvr_replica_in_rotation(replica));
        } else {
            kvr_json_null(json, "replica"); /* it has left; it may come back */
            kvr_json_null(json, "weight");
            kvr_json_bool(json, "in_rotation", false);
        }
        kvr_json_double(json, "load", router->plan->loads[i]);
        kvr_json_uint(json, "keys", ingress->planner.origin.census.placed[i]);
        kvr_json_object_end(json);
    }
    kvr_json_array_end(json);
}

/* As requests have named it; NULL: not within memory. */
static const char *model_name(const struct kvr_router *router, uint32_t model)
{
    for (uint32_t i = 0; i < router->models.count; i++)
        if (kvr_hash32(router->models.models[i].hash) == model)
            return router->models.models[i].name;
    return NULL;
}

static void write_models(struct kvr_json_writer *json, const struct kvr_ingress *ingress)
{
    const struct kvr_plan_census *census = &ingress->planner.origin.census;
    kvr_json_uint(json, "models_all", census->models_all);
    kvr_json_array_begin(json, "models");
    for (uint32_t i = 0; i < census->models_len; i++) {
        const struct kvr_plan_census_model *model = &census->models[i];
        const char *name = model->model ? model_name(&ingress->router, model->model) : "";
        kvr_json_object_begin(json, NULL);
        if (name)
            kvr_json_text(json, "model", name);
        else
            kvr_json_null(json, "model");
        kvr_json_uint(json, "keys", model->keys);
        kvr_json_uint(json, "copies", model->copies);
        kvr_json_uint(json, "destinations", model->destinations);
        kvr_json_object_end(json);
    }
    kvr_json_array_end(json);
}

static void write_in_force(struct kvr_json_writer *json, const struct kvr_ingress *ingress,
                           uint64_t now_ns)
{
    const struct kvr_plan *plan = ingress->router.plan;
    const struct kvr_planner_origin *origin = &ingress->planner.origin;
    if (!plan) {
        kvr_json_null(json, "plan");
        return;
    }
    kvr_json_object_begin(json, "plan");
    if (*origin->file)
        kvr_json_text(json, "file", origin->file);
    else
        kvr_json_null(json, "file");
    kvr_json_double(json, "age_s", seconds_since(now_ns, origin->since_ns));
    if (*origin->file)
        kvr_json_null(json, "window_s");
    else
        kvr_json_double(json, "window_s", origin->window_s);
    kvr_json_uint(json, "keys", plan->keys);
    kvr_json_uint(json, "admitted", plan->admitted);
    kvr_json_uint(json, "split", plan->split);
    kvr_json_uint(json, "copies", plan->copies);
    kvr_json_double(json, "admitted_rate", plan->admitted_rate);
    kvr_json_double(json, "tail_rate", plan->tail_rate);
    kvr_json_double(json, "imbalance", plan->imbalance);
    write_models(json, ingress);
    write_destinations(json, ingress);
    kvr_json_object_end(json);
}

/* 1 - Jaccard of the sets of placements. */
static double churn(const struct kvr_plan_change *change)
{
    double all = (double)change->kept + change->added + change->removed;
    return all > 0 ? (change->added + (double)change->removed) / all : 0;
}

static void write_change(struct kvr_json_writer *json, const struct kvr_plan_change *change)
{
    kvr_json_object_begin(json, "change");
    kvr_json_double(json, "churn", churn(change));
    kvr_json_uint(json, "kept", change->kept);
    kvr_json_uint(json, "added", change->added);
    kvr_json_uint(json, "removed", change->removed);
    kvr_json_uint(json, "keys_both", change->keys_both);
    kvr_json_uint(json, "keys_moved", change->keys_moved);
    kvr_json_uint(json, "keys_recounted", change->keys_recounted);
    kvr_json_uint(json, "keys_new", change->keys_new);
    kvr_json_uint(json, "keys_gone", change->keys_gone);
    kvr_json_double(json, "rate_moved", change->rate_moved);
    kvr_json_double(json, "last_imbalance", change->last_imbalance);
    kvr_json_double(json, "staleness_tokens", change->staleness);
    kvr_json_double(json, "warmup_tokens", change->warmup);
    kvr_json_object_end(json);
}

/* In words for people. */
static void write_why(struct kvr_json_writer *json, const struct kvr_planner *planner)
{
    const struct kvr_planner_attempt *last = &planner->last;
    char words[256];
    switch (last->result) {
    case KVR_PLANNER_FAILED:
    case KVR_PLANNER_WITHHELD:
        kvr_json_text(json, "why", last->error.text);
        return;
    case KVR_PLANNER_NOT_WORTH:
        snprintf(words, sizeof words,
                 "warming its copies up costs %.0f tokens, the last one's staleness %.0f",
                 last->change.warmup, last->change.staleness);
        kvr_json_text(json, "why", words);
        return;
    case KVR_PLANNER_SAME:
        kvr_json_text(json, "why", "it places all keys as the last one");
        return;
    default:
        if (last->old_file)
            kvr_json_text(json, "why", KVR_PLANNER_OLD_FILE);
        else
            kvr_json_null(json, "why");
    }
}

static void write_last(struct kvr_json_writer *json, const struct kvr_planner *planner,
                       uint64_t now_ns)
{
    const struct kvr_planner_attempt *last = &planner->last;
    if (last->result == KVR_PLANNER_NOTHING) {
        kvr_json_null(json, "last");
        return;
    }
    kvr_json_object_begin(json, "last");
    kvr_json_text(json, "result", kvr_planner_result_name(last->result));
    write_why(json, planner);
    kvr_json_double(json, "age_s", seconds_since(now_ns, last->ended_ns));
    uint64_t made_us = last->made_ns / 1000;
    kvr_json_double(json, "made_ms", (double)made_us / 1e3);
    if (last->result != KVR_PLANNER_FAILED) {
        kvr_json_uint(json, "keys", last->keys);
        kvr_json_uint(json, "admitted", last->admitted);
        kvr_json_double(json, "imbalance", last->imbalance);
        write_change(json, &last->change);
    }
    kvr_json_object_end(json);
}

static void write_counters(struct kvr_json_writer *json, const struct kvr_ingress *ingress)
{
    const struct kvr_planner_counters *counters = &ingress->planner.counters;
    const uint64_t *planned = ingress->router.metrics.planned;
    kvr_json_object_begin(json, "plannings");
    for (int i = KVR_PLANNER_INSTALLED; i < KVR_PLANNER_RESULTS; i++)
        kvr_json_uint(json, kvr_planner_result_name((enum kvr_planner_result)i),
                      counters->results[i]);
    kvr_json_uint(json, "withdrawals", counters->withdrawals);
    kvr_json_uint(json, "placements_added", counters->added);
    kvr_json_uint(json, "placements_removed", counters->removed);
    kvr_json_double(json, "piece_ms_max", (double)counters->piece_ns_max / 1e6);
    kvr_json_double(json, "install_ms_max", (double)counters->install_ns_max / 1e6);
    kvr_json_object_end(json);
    kvr_json_object_begin(json, "decisions");
    kvr_json_uint(json, "planned", planned[KVR_PLANNED_THERE]);
    kvr_json_uint(json, "planned_away", planned[KVR_PLANNED_AWAY]);
    kvr_json_uint(json, "unplanned", planned[KVR_UNPLANNED]);
    kvr_json_object_end(json);
}

void kvr_admin_plan(struct kvr_admin_call *call)
{
    const struct kvr_planner *planner = &call->ingress->planner;
    const struct kvr_router *router = &call->ingress->router;
    struct kvr_buffer out = {0};
    struct kvr_json_writer json = {.out = &out};
    kvr_json_object_begin(&json, NULL);
    kvr_json_text(&json, "state", kvr_planner_phase_name(planner->phase));
    kvr_json_double(&json, "interval_s", (double)planner->options.interval_ns / 1e9);
    if (*planner->withheld)
        kvr_json_text(&json, "withheld", planner->withheld);
    else
        kvr_json_null(&json, "withheld");
    kvr_json_bool(&json, "needed", (router->needs & KVR_NEEDS_PLAN) != 0);
    write_in_force(&json, call->ingress, call->now_ns);
    write_last(&json, planner, call->now_ns);
    write_counters(&json, call->ingress);
    kvr_json_object_end(&json);
    kvr_admin_answer(call, &out);
    kvr_buffer_deinit(&out);
}

/* ---- changing it ---- */

static void on_done(void *context, const struct kvr_error *error)
{
    struct kvr_admin_call call = kvr_admin_resume(context);
    if (error)
        kvr_admin_refuse_error(&call, NULL, error);
    else
        kvr_admin_plan(&call);
}

static void ask(struct kvr_admin_call *call, struct kvr_slice file)
{
    struct kvr_planner_wish wish = {.on_done = on_done};
    struct kvr_error error = {0};
    if (file.len >= sizeof wish.file || memchr(file.data ? file.data : "", '\0', file.len)) {
        kvr_admin_refuse(call, 400, "invalid_value", "file", "file: no path of a file");
        return;
    }
    if (file.data)
        memcpy(wish.file, file.data, file.len);
    wish.context = kvr_admin_wait(call);
    if (kvr_planner_ask(&call->ingress->planner, &wish, &error) == 0)
        return;
    *call = kvr_admin_resume(wish.context);
    kvr_admin_refuse_error(call, NULL, &error);
}

void kvr_admin_load_plan(struct kvr_admin_call *call)
{
    if (call->body->file.len)
        ask(call, call->body->file);
    else
        kvr_admin_refuse(call, 400, "invalid_value", "file", "file: is empty");
}

void kvr_admin_plan_now(struct kvr_admin_call *call)
{
    ask(call, kvr_slice_of(""));
}

void kvr_admin_plan_off(struct kvr_admin_call *call)
{
    char why[128];
    struct kvr_slice given = call->body->why;
    snprintf(why, sizeof why, "%.*s", given.len < sizeof why ? (int)given.len : (int)sizeof why,
             given.len ? given.data : "");
    kvr_planner_withhold(&call->ingress->planner, why);
    kvr_admin_plan(call);
}

void kvr_admin_plan_on(struct kvr_admin_call *call)
{
    kvr_planner_resume(&call->ingress->planner);
    kvr_admin_plan(call);
}

/* ---- metrics ---- */

static void write_gauges(const struct kvr_ingress *ingress, struct kvr_prom_writer *prom)
{
    const struct kvr_plan *plan = ingress->router.plan;
    double age =
        plan ? seconds_since(kvr_loop_now(), ingress->planner.origin.since_ns) : (double)NAN;
    kvr_prom_gauge(prom, "plan_age_seconds", age, "Since the plan in force was installed.");
    kvr_prom_gauge(prom, "plan_keys", plan ? plan->keys : 0,
                   "Routing keys that the plan in force was made from.");
    kvr_prom_gauge(prom, "plan_admitted_keys", plan ? plan->admitted : 0,
                   "Of those, keys that it places.");
    kvr_prom_gauge(prom, "plan_copies", plan ? plan->copies : 0,
                   "Placements of a key on a replica.");
    kvr_prom_gauge(prom, "plan_imbalance_ratio", plan ? plan->imbalance : (double)NAN,
                   "Largest over mean load by weight, as it expects them.");
    kvr_prom_gauge(prom, "plan_withheld", *ingress->planner.withheld != '\0',
                   "1 while no plan is put in force.");
}

void kvr_admin_write_plan(const struct kvr_ingress *ingress, struct kvr_prom_writer *prom)
{
    static const char *const kinds[KVR_PLANNED_KINDS] = {"planned", "planned_away", "unplanned"};
    const struct kvr_planner_counters *counters = &ingress->planner.counters;
    write_gauges(ingress, prom);
    kvr_prom_family(prom, "plannings_total", KVR_PROM_COUNTER,
                    "Plans that were to be made, by what became of them.");
    for (int i = KVR_PLANNER_INSTALLED; i < KVR_PLANNER_RESULTS; i++) {
        kvr_prom_label(prom, "result",
                       kvr_slice_of(kvr_planner_result_name((enum kvr_planner_result)i)));
        kvr_prom_uint(prom, counters->results[i]);
    }
    kvr_prom_counter(prom, "plan_withdrawals_total", counters->withdrawals,
                     "Times the plan in force was taken away.");
    kvr_prom_counter(prom, "plan_added_placements_total", counters->added,
                     "Placements that an installed plan had and the one before had not.");
    kvr_prom_counter(prom, "plan_removed_placements_total", counters->removed,
                     "Placements that the one before had and it had not.");
    kvr_prom_family(prom, "plan_decisions_total", KVR_PROM_COUNTER,
                    "Dispatches while a plan was in force, by where it has the key.");
    for (int i = 0; i < KVR_PLANNED_KINDS; i++) {
        kvr_prom_label(prom, "plan", kvr_slice_of(kinds[i]));
        kvr_prom_uint(prom, ingress->router.metrics.planned[i]);
    }
}

#include "live_engine.h"

#include <string.h>

#include "check.h"
#include "loop.h"
#include "memory.h"
#include "prefetch.h"

#define NO_SLOT        UINT32_MAX
#define BEFORE_SHARE   0.8 /* of the overhead, spent before the engine sees a request */
#define DELIVERIES_MIN 64u
#define DELIVERIES_MAX (1u << 22)
#define AHEAD_EVENT    12 /* deliveries: when an event is fetched, */
#define AHEAD_OWNER    6  /* its request with what is behind it, */
#define AHEAD_REST     3  /* and what only the request's owner knows of */

/* Events name a request by slot and generation, so that one which is gone is not found. */
struct kvr_live_slot {
    struct kvr_live_request *request; /* NULL: free */
    uint32_t generation;
    uint32_t next_free;
};

struct kvr_live_delivery {
    uint64_t due_ns;
    struct kvr_engine_event event;
};

static uint64_t wall_of(const struct kvr_live_engine *live, uint64_t engine_ns)
{
    return live->origin_ns + (uint64_t)((double)engine_ns / live->time_scale + 0.5);
}

uint64_t kvr_live_engine_now(const struct kvr_live_engine *live)
{
    return (uint64_t)((double)(kvr_loop_now() - live->origin_ns) * live->time_scale);
}

/* ---- who an event belongs to ---- */

static void hold_slot(struct kvr_live_engine *live, struct kvr_live_request *request)
{
    if (live->first_free == NO_SLOT) {
        uint32_t len = live->slots_len ? live->slots_len * 2 : 64;
        live->slots = kvr_realloc(live->slots, len * sizeof *live->slots);
        for (uint32_t i = len; i-- > live->slots_len;) {
            live->slots[i] = (struct kvr_live_slot){NULL, 0, live->first_free};
            live->first_free = i;
        }
        live->slots_len = len;
    }
    request->slot = live->first_free;
    struct kvr_live_slot *slot = &live->slots[request->slot];
    live->first_free = slot->next_free;
    slot->request = request;
    slot->generation++;
    request->engine.id = (uint64_t)slot->generation << 32 | request->slot;
}

static void free_slot(struct kvr_live_engine *live, struct kvr_live_request *request)
{
    struct kvr_live_slot *slot = &live->slots[request->slot];
    KVR_CHECK(slot->request == request);
    slot->request = NULL;
    slot->next_free = live->first_free;
    live->first_free = request->slot;
    request->slot = NO_SLOT;
}

static struct kvr_live_request *find(const struct kvr_live_engine *live, uint64_t id)
{
    const struct kvr_live_slot *slot = &live->slots[(uint32_t)id];
    return slot->request && slot->generation == id >> 32 ? slot->request : NULL;
}

/* ---- events on their way back ---- */

static void push_delivery(struct kvr_live_engine *live, const struct kvr_engine_event *event)
{
    if (live->deliveries_len > live->deliveries_mask) {
        uint32_t capacity = (live->deliveries_mask + 1) * 2;
        KVR_CHECK(capacity <= DELIVERIES_MAX);
        struct kvr_live_delivery *grown = kvr_alloc(capacity * sizeof *grown);
        for (uint32_t i = 0; i < live->deliveries_len; i++)
            grown[i] = live->deliveries[(live->deliveries_first + i) & live->deliveries_mask];
        kvr_free(live->deliveries);
        live->deliveries = grown;
        live->deliveries_first = 0;
        live->deliveries_mask = capacity - 1;
    }
    uint32_t at = (live->deliveries_first + live->deliveries_len++) & live->deliveries_mask;
    live->deliveries[at] = (struct kvr_live_delivery){event->time_ns + live->after_ns, *event};
}

static void collect(struct kvr_live_engine *live)
{
    struct kvr_engine_event event;
    while (kvr_engine_next_event(&live->engine, &event))
        if (event.kind == KVR_ENGINE_TOKEN || event.kind == KVR_ENGINE_FINISHED)
            push_delivery(live, &event);
}

static void deliver(struct kvr_live_engine *live, const struct kvr_live_delivery *delivery)
{
    const struct kvr_engine_event *event = &delivery->event;
    struct kvr_live_request *request = find(live, event->request);
    if (!request)
        return; /* aborted meanwhile */
    uint64_t now = kvr_loop_now();
    uint64_t due = wall_of(live, delivery->due_ns);
    kvr_histogram_add(&live->late_ns, now > due ? now - due : 0);
    live->delivered++;
    if (event->kind == KVR_ENGINE_TOKEN) {
        live->handler.on_token(live->handler.context, request, event);
        return;
    }
    free_slot(live, request);
    live->handler.on_finished(live->handler.context, request, event);
}

/* Of the delivery that is so many behind the first; NULL: none. */
static const struct kvr_live_delivery *delivery_ahead(const struct kvr_live_engine *live,
                                                      uint32_t ahead)
{
    uint32_t at = (live->deliveries_first + ahead) & live->deliveries_mask;
    return ahead < live->deliveries_len ? &live->deliveries[at] : NULL;
}

/* A step has a token for each of its streams, and of each stream's memory the cache has nothing: it
 * is asked for while those before it are served. */
static void look_ahead(const struct kvr_live_engine *live)
{
    const struct kvr_live_delivery *delivery = delivery_ahead(live, AHEAD_EVENT);
    if (delivery)
        kvr_prefetch_all(delivery, sizeof *delivery);
    delivery = delivery_ahead(live, AHEAD_OWNER);
    if (delivery)
        kvr_prefetch_all(find(live, delivery->event.request), live->handler.owner_bytes);
    delivery = delivery_ahead(live, AHEAD_REST);
    const struct kvr_live_request *request = delivery ? find(live, delivery->event.request) : NULL;
    if (request && live->handler.on_soon)
        live->handler.on_soon(live->handler.context, request);
}

static void deliver_due(struct kvr_live_engine *live, uint64_t now)
{
    while (live->deliveries_len && live->deliveries[live->deliveries_first].due_ns <= now) {
        look_ahead(live);
        struct kvr_live_delivery delivery = live->deliveries[live->deliveries_first];
        live->deliveries_first = (live->deliveries_first + 1) & live->deliveries_mask;
        live->deliveries_len--;
        deliver(live, &delivery);
    }
}

/* ---- requests on their way in ---- */

static struct kvr_live_request *first_arrival(const struct kvr_live_engine *live)
{
    return kvr_list_empty(&live->arrivals)
               ? NULL
               : KVR_LIST_ENTRY(live->arrivals.next, struct kvr_live_request, link);
}

static void enter(struct kvr_live_engine *live, struct kvr_live_request *request)
{
    kvr_list_remove(&request->link);
    /* The engine may have seen a later time already, by an abort. */
    uint64_t at = request->due_ns;
    if (at < live->engine.now_ns)
        at = live->engine.now_ns;
    int code = kvr_engine_submit(&live->engine, at, &request->engine, &request->handle);
    collect(live);
    if (code == 0) {
        live->handler.on_accepted(live->handler.context, request);
        return;
    }
    free_slot(live, request);
    live->handler.on_refused(live->handler.context, request, code);
}

/* The time of an order from outside: now, but not after a request that is due and has not entered,
 * and not before what the engine has seen. */
static uint64_t order_time(const struct kvr_live_engine *live)
{
    uint64_t now = kvr_live_engine_now(live);
    const struct kvr_live_request *arrival = first_arrival(live);
    if (arrival && arrival->due_ns < now)
        now = arrival->due_ns;
    return now > live->engine.now_ns ? now : live->engine.now_ns;
}

/* ---- time ---- */

static void set_alarm(struct kvr_live_engine *live)
{
    uint64_t next = kvr_engine_next_time(&live->engine);
    const struct kvr_live_request *arrival = first_arrival(live);
    if (arrival && arrival->due_ns < next)
        next = arrival->due_ns;
    if (live->deliveries_len && live->deliveries[live->deliveries_first].due_ns < next)
        next = live->deliveries[live->deliveries_first].due_ns;
    kvr_alarm_set(&live->alarm, next == KVR_ENGINE_NEVER ? KVR_ALARM_NEVER : wall_of(live, next));
}

/* The next thing that happens by `now`, arrivals and steps in the order of their times. False when
 * there is none. One at a time, so that a process that was held up for long hands out what it has
 * before it makes more. */
static bool take_one(struct kvr_live_engine *live, uint64_t now)
{
    struct kvr_live_request *arrival = first_arrival(live);
    uint64_t step = kvr_engine_next_time(&live->engine);
    bool enters = arrival && arrival->due_ns <= step;
    uint64_t due = enters ? arrival->due_ns : step;
    if (due > now)
        return false;
    if (enters) {
        enter(live, arrival);
    } else {
        kvr_engine_advance(&live->engine, step);
        collect(live);
    }
    deliver_due(live, due);
    return true;
}

static void on_ring(void *context)
{
    struct kvr_live_engine *live = context;
    /* wall_of rounds: what rang for a time has reached it. */
    uint64_t now = kvr_live_engine_now(live) + 1 + (uint64_t)live->time_scale;
    while (take_one(live, now))
        continue;
    deliver_due(live, now);
    set_alarm(live);
}

int kvr_live_engine_init(struct kvr_live_engine *live, uv_loop_t *uv,
                         const struct kvr_live_options *options,
                         const struct kvr_live_handler *handler, struct kvr_error *error)
{
    memset(live, 0, sizeof *live);
    live->handler = *handler;
    live->time_scale = options->time_scale > 0 ? options->time_scale : 1;
    live->first_free = NO_SLOT;
    kvr_list_init(&live->arrivals);
    int failed = kvr_engine_init(&live->engine,
                                 &(struct kvr_engine_options){
                                     .profile = options->profile,
                                     .seed = options->seed,
                                     .token_events = true,
                                     .max_waiting = options->max_waiting,
                                     .max_waiting_tokens = options->max_waiting_tokens,
                                 },
                                 error);
    if (failed)
        return failed;
    double overhead_ns = options->profile->overhead_ms * 1e6;
    live->before_ns = (uint64_t)(overhead_ns * BEFORE_SHARE);
    live->after_ns = (uint64_t)(overhead_ns * (1 - BEFORE_SHARE));
    failed = kvr_alarm_init(&live->alarm, uv, on_ring, live, error);
    if (failed) {
        kvr_engine_deinit(&live->engine);
        return failed;
    }
    live->deliveries = kvr_alloc(DELIVERIES_MIN * sizeof *live->deliveries);
    live->deliveries_mask = DELIVERIES_MIN - 1;
    live->origin_ns = kvr_loop_now();
    return 0;
}

void kvr_live_engine_deinit(struct kvr_live_engine *live)
{
    KVR_CHECK(kvr_list_empty(&live->arrivals));
    kvr_alarm_deinit(&live->alarm);
    kvr_engine_deinit(&live->engine);
    kvr_free(live->slots);
    kvr_free(live->deliveries);
    live->slots = NULL;
    live->deliveries = NULL;
}

void kvr_live_engine_submit(struct kvr_live_engine *live, struct kvr_live_request *request)
{
    request->arrived_ns = kvr_live_engine_now(live);
    request->due_ns = request->arrived_ns + live->before_ns;
    request->handle = (struct kvr_engine_handle){0, 0};
    kvr_list_init(&request->link);
    hold_slot(live, request);
    kvr_list_append(&live->arrivals, &request->link);
    set_alarm(live);
}

void kvr_live_engine_abort(struct kvr_live_engine *live, struct kvr_live_request *request)
{
    if (request->slot == NO_SLOT)
        return;
    kvr_list_remove(&request->link);
    free_slot(live, request);
    if (request->handle.generation) {
        /* Not found: it has finished, and its last events were on their way. */
        int code = kvr_engine_abort(&live->engine, order_time(live), request->handle);
        KVR_CHECK(code == 0 || code == KVR_E_NOT_FOUND);
        collect(live);
    }
    set_alarm(live);
}

void kvr_live_engine_restart(struct kvr_live_engine *live)
{
    uint64_t now = order_time(live);
    kvr_engine_restart(&live->engine, now);
    collect(live);
    live->started_ns = now;
    deliver_due(live, UINT64_MAX); /* a dead process delays nothing */
    struct kvr_list lost;
    kvr_list_init(&lost);
    struct kvr_live_request *arrival;
    while ((arrival = first_arrival(live))) {
        kvr_list_remove(&arrival->link);
        kvr_list_append(&lost, &arrival->link);
    }
    while (!kvr_list_empty(&lost)) {
        struct kvr_live_request *request = KVR_LIST_ENTRY(lost.next, struct kvr_live_request, link);
        kvr_list_remove(&request->link);
        free_slot(live, request);
        live->handler.on_refused(live->handler.context, request, KVR_E_STATE);
    }
    set_alarm(live);
}

bool kvr_live_engine_ready(const struct kvr_live_engine *live)
{
    return kvr_engine_ready(&live->engine, order_time(live));
}

void kvr_live_engine_slow_down(struct kvr_live_engine *live, double factor)
{
    kvr_engine_set_slowdown(&live->engine, order_time(live), factor);
    collect(live);
    set_alarm(live);
}

int kvr_live_engine_reset_cache(struct kvr_live_engine *live)
{
    int code = kvr_engine_reset_prefix_cache(&live->engine, order_time(live));
    collect(live);
    set_alarm(live);
    return code;
}

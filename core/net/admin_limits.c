/* The part of GET /metrics about limits: one family, a sample a limit, named as its setting is. */
#include "admin_call.h"

struct reached {
    const char *setting;
    uint64_t times;
};

static void write_reached(struct kvr_prom_writer *prom, const struct reached *limits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        kvr_prom_label(prom, "limit", kvr_slice_of(limits[i].setting));
        kvr_prom_uint(prom, limits[i].times);
    }
}

static void write_refusals(const struct kvr_listener_counters *in, struct kvr_prom_writer *prom)
{
    for (int i = 0; i < KVR_REFUSALS; i++) {
        const char *setting = kvr_refusal_answer((enum kvr_refusal)i)->setting;
        if (setting)
            write_reached(prom, &(struct reached){setting, in->refused[i]}, 1);
    }
}

/* Of all listeners of the ingress. */
static struct kvr_listener_counters add_up(const struct kvr_ingress *ingress)
{
    struct kvr_listener_counters sum = {0};
    for (uint32_t i = 0; i < ingress->listeners_count; i++) {
        const struct kvr_listener_counters *one = &ingress->listeners[i].counters;
        for (int j = 0; j < KVR_REFUSALS; j++)
            sum.refused[j] += one->refused[j];
        sum.out_of_connections += one->out_of_connections;
        sum.out_of_descriptors += one->out_of_descriptors;
        sum.made_room += one->made_room;
        sum.idle += one->idle;
        sum.stalled += one->stalled;
    }
    return sum;
}

void kvr_admin_write_limits(const struct kvr_ingress *ingress, struct kvr_prom_writer *prom)
{
    const struct kvr_router *router = &ingress->router;
    const struct kvr_listener_counters in = add_up(ingress);
    const struct reached others[] = {
        {"limits.connections", in.out_of_connections},
        {"limits.requests", router->metrics.rejections[KVR_REJECT_REQUESTS_MAX]},
        {"limits.stream_buffer_bytes", ingress->counters.pauses},
        {"descriptors", in.out_of_descriptors},
        {"replicas.capacity", router->metrics.rejections[KVR_REJECT_AT_CAPACITY]},
        {"queue.max", router->queue.refused},
        {"queue.deadline_ms", router->queue.expired},
        {"timeouts.client_idle_ms", in.idle},
        {"timeouts.client_stall_ms", in.stalled},
    };
    kvr_prom_family(prom, "limit_hits_total", KVR_PROM_COUNTER,
                    "Times a limit was reached, by the setting that is the limit.");
    write_refusals(&in, prom);
    write_reached(prom, others, sizeof others / sizeof others[0]);
    for (int i = 0; i < KVR_TIME_LIMITS; i++)
        write_reached(prom,
                      &(struct reached){kvr_time_limit_setting((enum kvr_time_limit)i),
                                        ingress->counters.timeouts[i]},
                      1);
    kvr_prom_counter(prom, "client_connections_displaced_total", in.made_room,
                     "Idle client connections closed because others wanted in.");
}

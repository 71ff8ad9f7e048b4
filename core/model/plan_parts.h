/* A plan while it is made: shared by plan*.c and by nobody else. plan_admit.c says which keys are
 * in it and with how many copies, plan_place.c where they go, plan_keep.c what stays where the last
 * plan had it and what moves nevertheless. */
#ifndef KVR_PLAN_PARTS_H
#define KVR_PLAN_PARTS_H

#include <stdbool.h>

#include "plan.h"
#include "ranking.h"
#include "replica.h"

struct kvr_place {
    double load; /* so far */
    uint32_t destination;
};

/* Destinations of one weight, as a heap: the least loaded first, ties by number. */
struct kvr_tier {
    double weight;
    struct kvr_place *heap;
    uint32_t len;
};

struct kvr_plan_draft {
    const struct kvr_plan_options *options;
    const struct kvr_plan_input *input;
    struct kvr_ranked *order; /* admitted keys by falling rate; `item` is the index of a key, and
                                 `rank` its number of copies */
    struct kvr_ranked *scratch;
    uint16_t *had;  /* keep: by key, copies of the last plan that there still are; or NULL */
    uint32_t *kept; /* keep: by entry, copies that stay; they stand first. Or NULL */
    double *room;   /* tokens: by destination, those it still has room for; or NULL */
    struct kvr_plan *plan;
    double rate;         /* of all keys */
    double total_weight; /* of all destinations */
};

static inline double kvr_plan_weight(const struct kvr_plan_input *input, uint32_t destination)
{
    return input->weights ? input->weights[destination] : 1;
}

static inline struct kvr_plan_size kvr_plan_size_of(const struct kvr_plan_input *input,
                                                    uint32_t item)
{
    return input->sizes ? input->sizes[item] : (struct kvr_plan_size){1, 1};
}

static inline bool kvr_plan_is_in(const uint16_t *places, uint32_t count, uint32_t place)
{
    for (uint32_t i = 0; i < count; i++)
        if (places[i] == place)
            return true;
    return false;
}

/* Where the last plan has the key, in numbers of this one; how many of them there still are. */
uint32_t kvr_plan_last_places(const struct kvr_plan_input *input, uint64_t key,
                              uint16_t places[KVR_REPLICAS_MAX]);

/* Leaves in `order` what is admitted, and counts it in the plan. */
void kvr_plan_admit(struct kvr_plan_draft *draft);
/* Fills entries, destinations and loads. */
void kvr_plan_place(struct kvr_plan_draft *draft);
/* Copies that stay, with their loads; before the others are placed. */
void kvr_plan_keep(struct kvr_plan_draft *draft);
/* Moves from the busiest destinations to the others, within theta and the budget. */
void kvr_plan_move(struct kvr_plan_draft *draft);

#endif

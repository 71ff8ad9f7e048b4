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

/* Destinations of one weight that are in the same parts, as a heap: the least loaded first, ties by
 * number. */
struct kvr_tier {
    double weight;
    struct kvr_place *heap;
    uint32_t len;
};

/* Destinations that some keys may go to: one part a set of the input, and after them, or alone, the
 * part that is all of them. Parts overlap: all of one may be within another. */
struct kvr_plan_part {
    uint32_t destinations;
    double weight; /* of these */
    double heaviest;
    double tail;                /* rate of its keys that are not admitted */
    uint32_t slots, copies;     /* most of them; those of keys that can only go within it, so far */
    double tokens_most, tokens; /* likewise */
    bool full;                  /* a key did not fit, which ends admission */
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
    struct kvr_plan_part *parts;
    uint32_t parts_len;
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

/* Is the destination in the part? Without sets there is but part 0, all of them. */
static inline bool kvr_plan_has(const struct kvr_plan_input *input, uint32_t part,
                                uint32_t destination)
{
    if (!input->sets || part == input->sets_len)
        return true;
    uint32_t words = (input->destinations + 63) / 64;
    return input->sets[part * words + destination / 64] >> destination % 64 & 1;
}

/* Number of the part that the key may go to. */
static inline uint32_t kvr_plan_part_of(const struct kvr_plan_input *input, uint32_t item)
{
    return input->sets ? input->set_of[item] : 0;
}

/* Parts with what they weigh, nothing in them; `*len` of them. */
struct kvr_plan_part *kvr_plan_parts(const struct kvr_plan_input *input, uint32_t *len);
/* Adds the tail of each part to the loads of its destinations, by weight. */
void kvr_plan_add_tails(const struct kvr_plan_input *input, const struct kvr_plan_part *parts,
                        uint32_t len, double *loads);

/* Where the last plan has the key, in numbers of this one; how many of them there still are and
 * may be. */
uint32_t kvr_plan_last_places(const struct kvr_plan_input *input, uint32_t item,
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

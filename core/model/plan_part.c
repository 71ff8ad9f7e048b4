/* The parts of a plan's destinations that its keys may go to. */
#include <math.h>

#include "memory.h"
#include "plan_parts.h"

struct kvr_plan_part *kvr_plan_parts(const struct kvr_plan_input *input, uint32_t *len)
{
    *len = input->sets ? input->sets_len + 1 : 1;
    struct kvr_plan_part *parts = kvr_alloc_zero(*len, sizeof *parts);
    for (uint32_t i = 0; i < *len; i++)
        for (uint32_t to = 0; to < input->destinations; to++) {
            double weight = kvr_plan_weight(input, to);
            if (!kvr_plan_has(input, i, to))
                continue;
            parts[i].destinations++;
            parts[i].weight += weight;
            parts[i].heaviest = fmax(parts[i].heaviest, weight);
        }
    return parts;
}

void kvr_plan_add_tails(const struct kvr_plan_input *input, const struct kvr_plan_part *parts,
                        uint32_t len, double *loads)
{
    for (uint32_t i = 0; i < len; i++)
        for (uint32_t to = 0; to < input->destinations; to++)
            if (kvr_plan_has(input, i, to))
                loads[to] += parts[i].tail * kvr_plan_weight(input, to) / parts[i].weight;
}

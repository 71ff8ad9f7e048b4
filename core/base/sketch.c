#include "sketch.h"

#include <math.h>

#include "check.h"
#include "memory.h"

#define STEP_BITS 12 /* 4,096 steps an octave */
#define STEPS     (1u << STEP_BITS)
#define TOP_BIT   45 /* of the largest value that has a step of its own */
#define ALL_STEPS ((size_t)STEPS * (TOP_BIT - STEP_BITS + 2))

static uint32_t step_of(uint64_t value)
{
    if (value < STEPS)
        return (uint32_t)value;
    uint32_t bit = 63u - (uint32_t)__builtin_clzll(value);
    if (bit > TOP_BIT)
        return (uint32_t)ALL_STEPS - 1;
    uint32_t octave = bit - STEP_BITS;
    return STEPS * octave + (uint32_t)(value >> octave);
}

/* The middle of the values that share a step. */
static double middle_of(uint32_t step)
{
    if (step < STEPS)
        return step;
    uint32_t octave = step / STEPS - 1;
    uint64_t first = (uint64_t)(step - STEPS * octave) << octave;
    return (double)first + (double)((UINT64_C(1) << octave) - 1) / 2;
}

void kvr_sketch_deinit(struct kvr_sketch *sketch)
{
    kvr_free(sketch->steps);
    *sketch = (struct kvr_sketch){0};
}

void kvr_sketch_add(struct kvr_sketch *sketch, uint64_t value)
{
    if (!sketch->steps)
        sketch->steps = kvr_alloc_zero(ALL_STEPS, sizeof *sketch->steps);
    if (sketch->count == 0 || value < sketch->least)
        sketch->least = value;
    if (value > sketch->most)
        sketch->most = value;
    sketch->count++;
    sketch->sum += (double)value;
    sketch->squares += (double)value * (double)value;
    sketch->steps[step_of(value)]++;
}

double kvr_sketch_mean(const struct kvr_sketch *sketch)
{
    return sketch->count ? sketch->sum / (double)sketch->count : NAN;
}

double kvr_sketch_deviation(const struct kvr_sketch *sketch)
{
    if (sketch->count == 0)
        return NAN;
    double mean = kvr_sketch_mean(sketch);
    double variance = sketch->squares / (double)sketch->count - mean * mean;
    return variance > 0 ? sqrt(variance) : 0;
}

/* The values at ranks `low` and `low + 1` (the same where there is no other). */
static void find_ranks(const struct kvr_sketch *sketch, uint64_t low, double value[2])
{
    uint64_t high = low + 1 < sketch->count ? low + 1 : low;
    uint64_t seen = 0;
    uint32_t step = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t rank = i ? high : low;
        while (seen + sketch->steps[step] <= rank)
            seen += sketch->steps[step++];
        KVR_CHECK(step < ALL_STEPS);
        double middle = middle_of(step);
        double least = (double)sketch->least, most = (double)sketch->most;
        value[i] = middle < least ? least : middle > most ? most : middle;
        if (rank == 0)
            value[i] = least;
        if (rank + 1 == sketch->count)
            value[i] = most;
    }
}

double kvr_sketch_quantile(const struct kvr_sketch *sketch, double share)
{
    if (sketch->count == 0)
        return NAN;
    KVR_CHECK(share >= 0 && share <= 1);
    double place = share * (double)(sketch->count - 1);
    double low = floor(place);
    double value[2];
    find_ranks(sketch, (uint64_t)low, value);
    return value[0] + (value[1] - value[0]) * (place - low);
}

#include "median.h"

/* The first five samples, kept in order. */
static void add_early(struct kvr_median *median, float sample)
{
    uint32_t at = median->count++;
    median->positions[at] = at + 1;
    for (; at > 0 && median->heights[at - 1] > sample; at--)
        median->heights[at] = median->heights[at - 1];
    median->heights[at] = sample;
}

/* Height of marker i when it moves one rank by `step` (1 or -1): by a parabola through it and its
 * neighbours, or by a line where the parabola leaves the order. */
static float moved_height(const struct kvr_median *median, int i, int step)
{
    const float *q = median->heights;
    const uint32_t *n = median->positions;
    float below = (float)(n[i] - n[i - 1]), above = (float)(n[i + 1] - n[i]);
    float d = (float)step;
    float height = q[i] + d / (below + above) *
                              ((below + d) * (q[i + 1] - q[i]) / above +
                               (above - d) * (q[i] - q[i - 1]) / below);
    if (height > q[i - 1] && height < q[i + 1])
        return height;
    return q[i] + (step > 0 ? (q[i + 1] - q[i]) / above : (q[i - 1] - q[i]) / below);
}

void kvr_median_add(struct kvr_median *median, float sample)
{
    if (median->count < 5) {
        add_early(median, sample);
        return;
    }
    float *q = median->heights;
    uint32_t *n = median->positions;
    if (sample < q[0])
        q[0] = sample;
    if (sample > q[4])
        q[4] = sample;
    for (int i = 1; i < 4; i++)
        n[i] += sample < q[i];
    n[4]++;
    uint32_t steps = median->count++; /* samples but one: ranks run from 1 to steps + 1 */
    for (int i = 1; i < 4; i++) {
        float wanted = 1 + (float)steps * (float)i / 4;
        float off = wanted - (float)n[i];
        if (off >= 1 && n[i + 1] - n[i] > 1) {
            q[i] = moved_height(median, i, 1);
            n[i]++;
        } else if (off <= -1 && n[i] - n[i - 1] > 1) {
            q[i] = moved_height(median, i, -1);
            n[i]--;
        }
    }
}

float kvr_median_value(const struct kvr_median *median)
{
    if (median->count == 0)
        return 0;
    return median->heights[median->count < 5 ? (median->count - 1) / 2 : 2];
}

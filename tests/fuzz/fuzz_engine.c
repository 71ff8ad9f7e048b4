/* The emulated engine, by orders that the input chooses: every draw of engine_schedule.h is taken
 * from it, two bytes where one does not do; past its end it is all zeros. The first byte is the
 * seed of the jitter, and of how many requests there are.
 *
 * Whatever is ordered, a naive engine brings the same events to the nanosecond and has the same
 * blocks in the same order, in all ways of driving; no block is lost. */
#include "fuzz.h"

#include "engine_schedule.h"

static uint32_t draw(void *dice, uint32_t bound)
{
    struct fuzz_input *input = dice;
    return (uint32_t)(fuzz_number(input, bound > 0x10000 ? 4 : bound > 0x100 ? 2 : 1) % bound);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct schedule s;
    struct fuzz_input input = {data, size};
    s.draw = draw;
    s.dice = &input;
    uint8_t seed = fuzz_byte(&input);
    run_schedule(&s, seed);
    return 0;
}

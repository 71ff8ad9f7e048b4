#include "decide.h"

uint32_t kvr_fallback_pick(const struct kvr_view *view, uint32_t serial)
{
    uint32_t tied = 0;
    for (uint32_t i = 0; i < view->count; i++)
        if (view->rows[i].available && view->rows[i].load <= view->min_load)
            tied++;
    if (tied == 0)
        return KVR_NO_REPLICA;
    uint32_t turn = serial % tied;
    for (uint32_t i = 0; i < view->count; i++)
        if (view->rows[i].available && view->rows[i].load <= view->min_load && turn-- == 0)
            return i;
    return KVR_NO_REPLICA;
}

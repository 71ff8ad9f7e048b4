/* One header of an HTTP message: slices into the bytes of its head, value without outer blanks. */
#ifndef KVR_HEADER_H
#define KVR_HEADER_H

#include "slice.h"

struct kvr_header {
    struct kvr_slice name;
    struct kvr_slice value;
};

#endif

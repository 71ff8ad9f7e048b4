/* File descriptors of the process: thousands of streams need as many. */
#ifndef KVR_DESCRIPTORS_H
#define KVR_DESCRIPTORS_H

#include <stdint.h>

/* Takes as many as the system allows. Returns how many there may be; 0: it cannot be told. */
uint32_t kvr_descriptors_raise(void);

#endif

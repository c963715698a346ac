/*
 * Physical memory that is mapped into arrays.
 */
#ifndef KS_MEMORY_TILES_H
#define KS_MEMORY_TILES_H

#include <stdint.h>

/* After an array has ended: removes its tiles. */
void ks_tiles_of_array_ended(uint64_t array);

/* In a forked child: there are none. */
void ks_tiles_forget(void);

#endif

/*
 * Physical memory that the application maps where it likes.
 */
#ifndef KS_MEMORY_VIRTUAL_H
#define KS_MEMORY_VIRTUAL_H

#include <stdint.h>

/* One use of physical memory less; with the last one it is the GPU's again. */
void ks_physical_leave(uint64_t handle);

#endif

/*
 * Physical memory that the application maps at addresses of its choice.
 */
#ifndef KS_MEMORY_VIRTUAL_H
#define KS_MEMORY_VIRTUAL_H

#include <stdint.h>

/* Removes a use of physical memory; with the last one its charge is given back. */
void ks_physical_leave(uint64_t handle);

#endif

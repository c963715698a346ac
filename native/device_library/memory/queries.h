/*
 * A GPU's memory as the processes of a session see it.
 */
#ifndef KS_MEMORY_QUERIES_H
#define KS_MEMORY_QUERIES_H

#include <stdint.h>

/* Replaces the driver's figures of a GPU, in bytes: the total is at most the limit, and what is
 * available at most what is left of it. */
void ks_memory_as_seen(unsigned cell, uint64_t *available, uint64_t *total);

#endif

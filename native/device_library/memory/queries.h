/*
 * A GPU's memory as the processes of a session see it.
 */
#ifndef KS_MEMORY_QUERIES_H
#define KS_MEMORY_QUERIES_H

#include <stdint.h>

/* Takes what the driver says of a GPU, and gives what to say instead: no more
 * in total than the limit, no more free than is left of it. Bytes. */
void ks_memory_as_seen(unsigned cell, uint64_t *available, uint64_t *total);

#endif

/*
 * Managed memory for what a GPU has no room for.
 */
#ifndef KS_MEMORY_SPILL_H
#define KS_MEMORY_SPILL_H

#include "driver.h"
#include "memory/allocations.h"

/* After the driver answered `result` to a request for linear memory that was charged: where it had
 * none left, and more of the GPU's memory is given out than it has, allocates managed memory and
 * makes the allocation KS_SPILLED. Returns the result for the application. */
CUresult ks_spill(struct ks_allocation *allocation, CUresult result, CUdeviceptr *pointer,
                  uint64_t bytes);

/* Frees a KS_SPILLED when the stream comes to that; the entry is KS_SPILLED_FREED until then, and
 * stays charged. */
CUresult ks_spill_free_in_stream(const struct ks_allocation *spilled, CUstream stream);

/* Whether a pointer is of memory that was freed in this way and still is there. */
bool ks_spill_is_freed(CUdeviceptr pointer);

/* Has the driver free what streams have come to: waits for all work of its context. */
void ks_spill_free_reached(void);

#endif

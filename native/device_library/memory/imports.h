/*
 * Which charge an imported handle has.
 *
 * What a process exports it may import too: its memory then outlives its first handle, and no call
 * tells which imported handle is which memory's. So a charge whose handle ends passes to a handle
 * that may be of the same memory: it was imported after the export, and is of the same GPU. Where
 * each of those has a charge already, the smallest ends: what is left is never less than what they
 * can hold.
 */
#ifndef KS_IMPORTS_H
#define KS_IMPORTS_H

#include "memory/allocations.h"

/* The cell of an imported handle of which the driver does not say where its memory is. */
#define KS_ANY_CELL UINT16_MAX

/* The owner of a KS_PHYSICAL that was imported now. */
uint64_t ks_imports_number(void);

/* After the memory of a handle was exported. */
void ks_imports_may_follow(CUmemGenericAllocationHandle handle);

/* Passes the charge of a KS_PHYSICAL that has ended on; true if a charge ends all the same, which
 * is in `ended` then: its own, or that of another handle. */
bool ks_imports_end(struct ks_allocation *ended);

#endif

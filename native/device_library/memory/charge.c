#include "memory/charge.h"

#include "account.h"
#include "context.h"
#include "lookup/driver_calls.h"
#include "memory/graphs.h"
#include "memory/pools.h"
#include "memory/reserve.h"
#include "memory/spill.h"
#include "session.h"
#include "system.h"

#define SMALL_BYTES (UINT64_C(1) << 20)

uint64_t ks_taken(uint64_t bytes) {
    return ks_round_up(bytes, bytes < SMALL_BYTES ? KS_MEMORY_UNIT : KS_PAGE_BYTES);
}

static void fill(struct ks_allocation *allocation, enum ks_kind kind, int cell, uint64_t bytes,
                 CUresult *refusal) {
    const bool permitted = cell != KS_NO_CELL && !ks_session_is_revoked();
    *refusal = permitted ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
    *allocation = (struct ks_allocation){
        .kind = (uint16_t)kind, .cell = (uint16_t)cell, .bytes = bytes, .uses = 1};
}

bool ks_describe(struct ks_allocation *allocation, enum ks_kind kind, uint64_t bytes,
                 CUresult *refusal) {
    int cell;
    if (!ks_session_is_open() || !ks_current_cell(&cell))
        return false;
    fill(allocation, kind, cell, bytes, refusal);
    allocation->owner = (uint64_t)(uintptr_t)ks_owning_context();
    return true;
}

bool ks_describe_on(struct ks_allocation *allocation, enum ks_kind kind, CUdevice device,
                    uint64_t bytes, CUresult *refusal) {
    if (!ks_session_is_open() || !ks_device_exists(device))
        return false;
    fill(allocation, kind, ks_cell_of_device(device), bytes, refusal);
    return true;
}

/* The limit without what the driver takes for contexts and code. */
static uint64_t allowance(unsigned cell) {
    const uint64_t limit = ks_session_memory_limit(cell);
    const uint64_t overhead = ks_session_overhead(cell);
    return overhead < limit ? limit - overhead : 0;
}

bool ks_fits(unsigned cell, uint64_t bytes) {
    return ks_account_charge(cell, bytes, allowance(cell));
}

CUresult ks_charge(unsigned cell, uint64_t bytes) {
    if (ks_fits(cell, bytes))
        return CUDA_SUCCESS;
    ks_spill_free_reached();
    ks_reserves_return(cell);
    if (ks_fits(cell, bytes))
        return CUDA_SUCCESS;
    ks_debug("refused %llu bytes: the limit is %llu, of which contexts and code take %llu",
             (unsigned long long)bytes, (unsigned long long)ks_session_memory_limit(cell),
             (unsigned long long)ks_session_overhead(cell));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void ks_charge_anyway(unsigned cell, uint64_t bytes) {
    if (!ks_fits(cell, bytes))
        ks_account_charge(cell, bytes, KS_NO_LIMIT);
}

CUresult ks_book(struct ks_allocation *allocation, uint64_t handle, CUresult result,
                 void (*undo)(uint64_t handle)) {
    if (result == CUDA_SUCCESS) {
        allocation->handle = handle;
        if (ks_allocations_add(allocation)) {
            if (allocation->kind == KS_SPILLED)
                ks_account_spill(allocation->bytes);
            return CUDA_SUCCESS;
        }
        undo(handle);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    ks_account_give_back(allocation->cell, allocation->bytes);
    return result;
}

CUresult ks_freed(const struct ks_allocation *allocation, CUresult result) {
    if (result == CUDA_SUCCESS)
        ks_allocations_settle(allocation);
    else
        ks_allocations_add(allocation);
    return result;
}

void ks_memory_of_context_ended(CUcontext context, uint64_t before) {
    ks_allocations_drop(context, before);
    ks_pools_context_ended(ks_cells_in_use());
    for (unsigned cell = 0; cell < ks_session_cells(); cell++)
        ks_graphs_visit(cell, false);
}

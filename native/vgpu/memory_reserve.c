/*
 * A call that may enlarge a reserve is charged for the most that it may need;
 * afterwards the driver says how large the reserve is. Where calls of several
 * threads are under way, nobody can tell whose memory that figure has already:
 * so the charge is only lowered when the last of them has ended.
 */
#include "memory_reserve.h"

#include "account.h"
#include "driver_calls.h"
#include "memory_charge.h"
#include "memory_graphs.h"
#include "memory_pools.h"

CUresult ks_reserve_begin(struct ks_reserve *reserve, uint64_t bytes) {
    const CUresult result = ks_charge(reserve->cell, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    ks_acquire(&reserve->lock);
    reserve->charged += bytes;
    reserve->under_way++;
    ks_release(&reserve->lock);
    return CUDA_SUCCESS;
}

/* What is free lies between what is given out, so in no more parts than there are pieces and
 * chunks: the largest part has at least its share. Calls that have taken what they were promised
 * are counted twice here: rather too little room than too much. */
static bool has_room(const struct ks_reserve *reserve, uint64_t bytes) {
    uint64_t reserved, used, asked;
    if (!reserve->ask(reserve, &reserved) || !reserve->ask_used(reserve, &used) ||
        used + reserve->promised > reserved)
        return false;
    const uint64_t parts =
        atomic_load(&reserve->pieces) + reserve->under_way + reserved / KS_CHUNK_BYTES + 1;
    return !__builtin_mul_overflow(bytes, parts, &asked) &&
           asked <= reserved - used - reserve->promised;
}

CUresult ks_reserve_begin_within(struct ks_reserve *reserve, uint64_t bytes) {
    ks_acquire(&reserve->lock);
    const bool room = has_room(reserve, bytes);
    if (room) {
        reserve->promised += bytes;
        reserve->under_way++;
    }
    ks_release(&reserve->lock);
    return room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The caller holds the lock: else a figure could be older than one that was charged before. */
static uint64_t settle(struct ks_reserve *reserve) {
    uint64_t bytes, missing = 0;
    if (!reserve->ask(reserve, &bytes))
        return 0;
    if (bytes > reserve->charged) {
        missing = bytes - reserve->charged;
        reserve->charged = bytes;
    } else if (reserve->under_way == 0) {
        ks_account_give_back(reserve->cell, reserve->charged - bytes);
        reserve->charged = bytes;
    }
    return missing;
}

bool ks_reserve_end(struct ks_reserve *reserve, uint64_t promised) {
    ks_acquire(&reserve->lock);
    reserve->promised -= promised;
    reserve->under_way--;
    const uint64_t missing = settle(reserve);
    const bool fits = missing == 0 || ks_fits(reserve->cell, missing);
    if (!fits)
        ks_charge_anyway(reserve->cell, missing);
    ks_release(&reserve->lock);
    return fits;
}

void ks_reserve_look(struct ks_reserve *reserve) {
    ks_acquire(&reserve->lock);
    const uint64_t missing = settle(reserve);
    if (missing != 0)
        ks_charge_anyway(reserve->cell, missing);
    ks_release(&reserve->lock);
}

uint64_t ks_reserve_close(struct ks_reserve *reserve) {
    ks_acquire(&reserve->lock);
    const uint64_t charged = reserve->charged;
    reserve->charged = 0;
    ks_release(&reserve->lock);
    return charged;
}

void ks_reserves_look(unsigned cell) {
    ks_pools_visit(cell, false);
    ks_graphs_visit(cell, false);
}

/* A capture in another thread must not be invalidated by what is asked of the driver here. */
void ks_reserves_return(unsigned cell) {
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool exchanged = KS_DRIVER(exchange_capture_mode)(&mode) == CUDA_SUCCESS;
    ks_pools_visit(cell, true);
    ks_graphs_visit(cell, true);
    if (exchanged)
        KS_DRIVER(exchange_capture_mode)(&mode);
}

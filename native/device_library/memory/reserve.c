/*
 * A call that may enlarge a reserve is charged for the most that it may need;
 * afterwards the driver reports the size of the reserve. While calls of several
 * threads are under way, that figure may include memory of any of them: so the
 * charge is only lowered when the last of them has ended.
 */
#include "memory/reserve.h"

#include "account.h"
#include "lookup/driver_calls.h"
#include "memory/charge.h"
#include "memory/graphs.h"
#include "memory/pools.h"

CUresult ks_reserve_begin(struct ks_reserve *reserve, uint64_t bytes) {
    const CUresult result = ks_charge(reserve->cell, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    ks_acquire(&reserve->lock, KS_LOCK_RESERVE);
    reserve->charged += bytes;
    reserve->under_way++;
    ks_release(&reserve->lock);
    return CUDA_SUCCESS;
}

static uint64_t chunks(uint64_t reserved) {
    return reserved > KS_CHUNK_BYTES ? reserved / KS_CHUNK_BYTES : 1;
}

/* Free memory is at the end of a chunk, or between pieces where one was freed. So this is the most
 * gaps there can be, and the largest gap has at least the average size. */
static uint64_t gaps(const struct ks_reserve *reserve, uint64_t reserved) {
    const uint64_t pieces = atomic_load(&reserve->pieces);
    const uint64_t frees = atomic_load(&reserve->frees);
    return chunks(reserved) + (pieces < frees ? pieces : frees);
}

/* A call that has taken what it was promised counts twice here, which errs on the safe side. */
static bool has_room(const struct ks_reserve *reserve, uint64_t bytes) {
    uint64_t reserved, used, asked;
    return reserve->ask(reserve, &reserved) && reserve->ask_used(reserve, &used) &&
           used + reserve->promised <= reserved &&
           !__builtin_mul_overflow(bytes, gaps(reserve, reserved), &asked) &&
           asked <= reserved - used - reserve->promised;
}

void ks_reserve_gives(struct ks_reserve *reserve) {
    atomic_fetch_add(&reserve->pieces, 1);
}

void ks_reserve_frees(struct ks_reserve *reserve) {
    atomic_fetch_add(&reserve->frees, 1);
}

/* Frees that begin during this call are of newer pieces, and stay counted. */
void ks_reserve_has_less(struct ks_reserve *reserve) {
    unsigned frees = atomic_load(&reserve->frees);
    if (atomic_fetch_sub(&reserve->pieces, 1) == 1)
        atomic_compare_exchange_strong(&reserve->frees, &frees, 0);
}

CUresult ks_reserve_begin_within(struct ks_reserve *reserve, uint64_t bytes) {
    ks_acquire(&reserve->lock, KS_LOCK_RESERVE);
    const bool room = has_room(reserve, bytes);
    if (room) {
        reserve->promised += bytes;
        reserve->under_way++;
    }
    ks_release(&reserve->lock);
    return room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The caller holds the lock, so that no older figure replaces a newer one. */
static uint64_t settle(struct ks_reserve *reserve) {
    uint64_t bytes, missing = 0;
    if (!reserve->ask(reserve, &bytes))
        return 0;
    if (bytes > reserve->charged) {
        missing = bytes - reserve->charged;
        reserve->charged = bytes;
    } else if (reserve->under_way == 0 && bytes < reserve->charged) {
        ks_account_give_back(reserve->cell, reserve->charged - bytes);
        reserve->charged = bytes;
    }
    return missing;
}

bool ks_reserve_end(struct ks_reserve *reserve, uint64_t promised) {
    ks_acquire(&reserve->lock, KS_LOCK_RESERVE);
    reserve->promised -= promised;
    reserve->under_way--;
    const uint64_t missing = settle(reserve);
    const bool fits = missing == 0 || ks_fits(reserve->cell, missing);
    if (!fits)
        ks_charge_anyway(reserve->cell, missing);
    ks_release(&reserve->lock);
    return fits;
}

void ks_reserve_settle(struct ks_reserve *reserve) {
    const uint64_t missing = settle(reserve);
    if (missing != 0)
        ks_charge_anyway(reserve->cell, missing);
}

void ks_reserve_look(struct ks_reserve *reserve) {
    ks_acquire(&reserve->lock, KS_LOCK_RESERVE);
    ks_reserve_settle(reserve);
    ks_release(&reserve->lock);
}

void ks_reserves_look(unsigned cell) {
    ks_pools_visit(cell, false);
    ks_graphs_visit(cell, false);
}

/* In relaxed mode, so that these calls do not invalidate a capture in another thread. */
void ks_reserves_return(unsigned cell) {
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool exchanged = KS_DRIVER(exchange_capture_mode)(&mode) == CUDA_SUCCESS;
    ks_pools_visit(cell, true);
    ks_graphs_visit(cell, true);
    if (exchanged)
        KS_DRIVER(exchange_capture_mode)(&mode);
}

/*
 * Where an administrator permits it, the limits of a GPU's sessions exceed its memory together. The
 * driver then refuses what fits a limit, and managed memory serves it: its pages move between the
 * host and the GPU as work uses them. Only linear memory can be replaced in this way.
 *
 * The driver frees managed memory at once, and waits for all work of the context. So where a
 * program frees it in a stream, the stream says when it has come to that, and the driver is called
 * by a thread of the program that needs room or has waited for the context. One that has waited for
 * a stream may be the one for which another stream's work waits.
 */
#include "memory/spill.h"

#include "lookup/driver_calls.h"
#include "lookup/real.h"
#include "memory/charge.h"
#include "session.h"
#include "system.h"

#include <stdatomic.h>
#include <stddef.h>

CUresult ks_spill(struct ks_allocation *allocation, CUresult result, CUdeviceptr *pointer,
                  uint64_t bytes) {
    if (result != CUDA_ERROR_OUT_OF_MEMORY || !ks_session_is_oversubscribed(allocation->cell))
        return result;
    const bool is_served =
        KS_REAL(cuMemAllocManaged)(pointer, bytes, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS;
    if (is_served)
        allocation->kind = KS_SPILLED;
    ks_debug("the GPU has no %llu bytes left: managed memory %s", (unsigned long long)bytes,
             is_served ? "serves them" : "does not serve them");
    /* Programs free what they can and try again upon the driver's answer, not upon another one. */
    return is_served ? CUDA_SUCCESS : result;
}

/* ---- free in the order of a stream ---------------------------------------------------------- */

enum { REACHED = 2 }; /* of a KS_SPILLED_FREED, as its uses */

static atomic_bool any_is_reached;

/* In a thread of the driver's, which may not call the driver. */
static void reach(void *pointer) {
    ks_allocations_mark(KS_SPILLED_FREED, (uint64_t)(uintptr_t)pointer, REACHED);
    atomic_store(&any_is_reached, true);
}

static bool is_reached(const struct ks_allocation *entry, const struct ks_allocation *best,
                       const struct ks_allocation *wanted) {
    (void)wanted;
    return best == NULL && entry->kind == KS_SPILLED_FREED && entry->uses == REACHED;
}

/* Where the driver refuses, as it does without a context, it is tried again later. */
void ks_spill_free_reached(void) {
    struct ks_allocation freed;
    CUresult result = CUDA_SUCCESS;
    if (!atomic_load(&any_is_reached) || !atomic_exchange(&any_is_reached, false))
        return;
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    KS_DRIVER(exchange_capture_mode)(&mode);
    while (result == CUDA_SUCCESS && ks_allocations_search(is_reached, NULL, &freed) &&
           ks_allocations_take_marked(KS_SPILLED_FREED, freed.handle, REACHED, &freed))
        result = ks_freed(&freed, KS_REAL(cuMemFree_v2)(freed.handle));
    KS_DRIVER(exchange_capture_mode)(&mode);
    if (result != CUDA_SUCCESS)
        atomic_store(&any_is_reached, true);
}

bool ks_spill_is_freed(CUdeviceptr pointer) {
    struct ks_allocation freed;
    return ks_allocations_find(KS_SPILLED_FREED, pointer, &freed);
}

CUresult ks_spill_free_in_stream(const struct ks_allocation *spilled, CUstream stream) {
    struct ks_allocation freed = *spilled;
    freed.kind = KS_SPILLED_FREED;
    if (!ks_allocations_change(spilled, &freed))
        return CUDA_ERROR_INVALID_VALUE; /* another thread has freed it */
    void *pointer = (void *)(uintptr_t)spilled->handle;
    const CUresult result = KS_DRIVER(launch_host_function)(stream, reach, pointer);
    if (result != CUDA_SUCCESS)
        ks_allocations_change(&freed, spilled);
    return result;
}

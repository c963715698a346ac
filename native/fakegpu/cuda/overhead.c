/*
 * Memory that no call asks for by size: a context's own, a module's code, the
 * stacks and heaps that kernels use. How much a context and a module take is
 * the profile's; a context starts with the usual limits' memory in it.
 */
#include "overhead.h"

#include "account.h"

#define MIB UINT64_C(1048576)

bool context_charge(struct CUctx_st *context, uint64_t bytes) {
    if (bytes > 0 && !device_charge(context->device, bytes))
        return false;
    __atomic_fetch_add(&context->overhead, bytes, __ATOMIC_RELAXED);
    return true;
}

void context_uncharge(struct CUctx_st *context, uint64_t bytes) {
    if (bytes > 0)
        device_uncharge(context->device, bytes);
    __atomic_fetch_sub(&context->overhead, bytes, __ATOMIC_RELAXED);
}

uint64_t context_price(void) {
    return driver.engine.profile.context_mib * MIB;
}

uint64_t module_price(void) {
    return driver.engine.profile.module_mib * MIB;
}

uint64_t stream_price(void) {
    return driver.engine.profile.stream_mib * MIB;
}

/* ---- limits -------------------------------------------------------------------- */

/* What a new context has. */
static const struct {
    size_t usual;
    bool known;
} limits[LIMITS] = {
    [CU_LIMIT_STACK_SIZE] = {1024,    true},
    [CU_LIMIT_PRINTF_FIFO_SIZE] = {1 << 20, true},
    [CU_LIMIT_MALLOC_HEAP_SIZE] = {8 << 20, true},
    [CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = {2,       true},
    [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = {2048,    true},
    [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = {64,      true},
    [CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = {0,       true},
};

void context_limits(struct CUctx_st *context) {
    for (unsigned limit = 0; limit < LIMITS; limit++)
        context->limit[limit] = limits[limit].usual;
}

/* Every thread that fits on the GPU has a stack. */
static uint64_t threads(const struct CUctx_st *context) {
    const struct model *model = &driver.engine.profile.models[context->device->gpu];
    return (uint64_t)model->multiprocessors * THREADS_PER_MULTIPROCESSOR;
}

/* What a limit takes beyond what is in a context anyway. */
static uint64_t price(const struct CUctx_st *context, CUlimit limit, size_t value) {
    uint64_t more = value > limits[limit].usual ? value - limits[limit].usual : 0;
    switch (limit) {
    case CU_LIMIT_STACK_SIZE:
        return round_up(more * threads(context), UNIT_PAGE);
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_MALLOC_HEAP_SIZE:
        return round_up(more, UNIT_PAGE);
    default:
        return 0;
    }
}

static CUresult find_limit(CUlimit limit, struct CUctx_st **context) {
    TRY(current_context(context));
    REQUIRE((unsigned)limit < LIMITS && limits[limit].known, CUDA_ERROR_UNSUPPORTED_LIMIT);
    return CUDA_SUCCESS;
}

API cuCtxGetLimit(size_t *value, CUlimit limit) {
    struct CUctx_st *context;
    TRY(find_limit(limit, &context));
    REQUIRE(value != NULL, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    *value = context->limit[limit];
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

/* What runs ends first: it may use what changes. */
API cuCtxSetLimit(CUlimit limit, size_t value) {
    struct CUctx_st *context;
    TRY(find_limit(limit, &context));
    REQUIRE(value < UINT64_C(1) << 40, CUDA_ERROR_OUT_OF_MEMORY);
    context_wait(context);
    pthread_mutex_lock(&driver.lock);
    uint64_t before = price(context, limit, context->limit[limit]);
    uint64_t after = price(context, limit, value);
    bool room = after <= before || context_charge(context, after - before);
    if (after < before)
        context_uncharge(context, before - after);
    if (room)
        context->limit[limit] = value;
    pthread_mutex_unlock(&driver.lock);
    return room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

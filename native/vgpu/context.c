/*
 * Contexts, and the GPU's own clock.
 *
 * A drain must say when the GPU was done, not when somebody woke up to see it:
 * on a busy machine that differs by milliseconds, and it would be charged. So
 * an event is recorded behind all work of a context, and its time read by the
 * distance to a base event whose time on CLOCK_MONOTONIC is known. The base is
 * taken anew every second (a distance is a float of milliseconds, and the two
 * clocks drift), on a stream of our own, where an event completes at once
 * however much work is queued elsewhere; and while the drain goes on, so it
 * costs no time of anybody's turn.
 */
#include "context.h"

#include "account.h"
#include "agent.h"
#include "allocations.h"
#include "claim.h"
#include "driver_calls.h"
#include "hooks.h"
#include "system.h"

#include <stdatomic.h>
#include <string.h>

#define CONTEXTS_MAX 128
#define DEVICES_MAX  64

#define BASE_LIFETIME     (KS_SECOND)
#define BASE_GOOD_ENOUGH  INT64_C(20000)   /* ns within which the base event surely happened */
#define BASE_ATTEMPT_TIME (KS_MILLISECOND) /* an attempt that takes longer says too little */
#define BASE_ATTEMPTS     4

struct tracked_context {
    CUcontext handle; /* NULL = free */
    int cell;
    unsigned long long id; /* tells a context from an earlier one with the same handle */
    bool prepared;
    CUstream stream;
    CUevent end;
    CUevent base[2]; /* the one in use, and the one for the next attempt */
    unsigned base_in_use;
    int64_t base_time;  /* CLOCK_MONOTONIC ns; 0 = never taken */
    int64_t base_width; /* ns between which the base event happened */
};

static ks_lock lock; /* held while the agent is inside the driver: contexts must not end then */
static struct tracked_context contexts[CONTEXTS_MAX];
static struct tracked_context primary_contexts[DEVICES_MAX];
static atomic_int cells_of_devices[DEVICES_MAX]; /* 0 unknown, else cell + 2 */
static atomic_bool closed;

/* ---- devices and cells ------------------------------------------------- */

static int look_up_cell(CUdevice device) {
    CUuuid uuid;
    if (KS_DRIVER(device_get_uuid_v2)(&uuid, device) != CUDA_SUCCESS &&
        KS_DRIVER(device_get_uuid)(&uuid, device) != CUDA_SUCCESS)
        return KS_NO_CELL;
    return ks_claim_cell_of_uuid(uuid.bytes);
}

int ks_cell_of_device(CUdevice device) {
    if (!ks_claim_is_open() || device < 0 || device >= DEVICES_MAX)
        return KS_NO_CELL;
    int known = atomic_load_explicit(&cells_of_devices[device], memory_order_relaxed);
    if (known == 0) {
        known = look_up_cell(device) + 2;
        atomic_store_explicit(&cells_of_devices[device], known, memory_order_relaxed);
    }
    return known - 2;
}

bool ks_current_cell(int *cell) {
    CUdevice device;
    if (KS_DRIVER(context_get_device)(&device) != CUDA_SUCCESS)
        return false;
    *cell = ks_cell_of_device(device);
    return true;
}

CUcontext ks_current_context(void) {
    CUcontext context = NULL;
    return KS_DRIVER(context_get_current)(&context) == CUDA_SUCCESS ? context : NULL;
}

/* ---- the end of the work of one context; the context is current --------- */

static bool prepare(struct tracked_context *context) {
    unsigned long long id = 0;
    KS_DRIVER(context_get_id)(context->handle, &id);
    if (context->prepared && context->id == id)
        return true;
    context->id = id;
    context->base_time = 0;
    context->prepared =
        KS_DRIVER(stream_create)(&context->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
        KS_DRIVER(event_create)(&context->end, CU_EVENT_BLOCKING_SYNC) == CUDA_SUCCESS &&
        KS_DRIVER(event_create)(&context->base[0], CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
        KS_DRIVER(event_create)(&context->base[1], CU_EVENT_DEFAULT) == CUDA_SUCCESS;
    return context->prepared;
}

/* Before a context ends. What it still needs is prepared again if it lives on. */
static void discard(struct tracked_context *context) {
    if (context->prepared) {
        KS_DRIVER(event_destroy)(context->end);
        KS_DRIVER(event_destroy)(context->base[0]);
        KS_DRIVER(event_destroy)(context->base[1]);
        KS_DRIVER(stream_destroy)(context->stream);
    }
    context->prepared = false;
}

static bool attempt_base(struct tracked_context *context) {
    const unsigned next = 1 - context->base_in_use;
    CUresult state;
    const int64_t before = ks_now();
    int64_t after;
    if (KS_DRIVER(event_record)(context->base[next], context->stream) != CUDA_SUCCESS)
        return false;
    do {
        state = KS_DRIVER(event_query)(context->base[next]);
        after = ks_now();
    } while (state == CUDA_ERROR_NOT_READY && after - before < BASE_ATTEMPT_TIME);
    const bool better = context->base_time == 0 || after - before < context->base_width;
    if (state == CUDA_SUCCESS && better) {
        context->base_in_use = next;
        context->base_width = after - before;
        context->base_time = before + context->base_width / 2;
    }
    return context->base_time != 0 && context->base_width <= BASE_GOOD_ENOUGH;
}

static void take_base(struct tracked_context *context) {
    if (context->base_time != 0 && ks_now() - context->base_time < BASE_LIFETIME)
        return;
    context->base_width = INT64_MAX; /* an old base is worse than any new one */
    for (int attempt = 0; attempt < BASE_ATTEMPTS && !attempt_base(context); attempt++)
        ;
}

static CUresult record_end(struct tracked_context *context, bool *covers_all_streams) {
    const CUresult result = KS_DRIVER(context_record_event)(context->handle, context->end);
    *covers_all_streams = result == CUDA_SUCCESS;
    return *covers_all_streams ? result : KS_DRIVER(event_record)(context->end, NULL);
}

/* Before CUDA 12.5 an event waits for the default stream and those that
 * synchronise with it; work of the others is waited for, and then the event repeated. */
static void cover_other_streams(struct tracked_context *context) {
    const int64_t before = ks_now();
    KS_DRIVER(context_synchronize)();
    if (ks_now() - before > KS_MILLISECOND / 5 &&
        KS_DRIVER(event_record)(context->end, NULL) == CUDA_SUCCESS)
        KS_DRIVER(event_synchronize)(context->end);
}

static int64_t finish_current(struct tracked_context *context) {
    float milliseconds;
    bool covers_all_streams;
    if (!prepare(context) || record_end(context, &covers_all_streams) != CUDA_SUCCESS) {
        KS_DRIVER(context_synchronize)();
        return ks_now();
    }
    take_base(context);
    KS_DRIVER(event_synchronize)(context->end);
    if (!covers_all_streams)
        cover_other_streams(context);
    const int64_t now = ks_now();
    const CUevent base = context->base[context->base_in_use];
    if (context->base_time == 0 ||
        KS_DRIVER(event_elapsed)(&milliseconds, base, context->end) != CUDA_SUCCESS)
        return now; /* a context in error: it is done, and cannot say since when */
    const int64_t end = context->base_time + (int64_t)(milliseconds * 1e6f);
    return end < now ? end : now;
}

static int64_t finish(struct tracked_context *context) {
    int relaxed = CU_STREAM_CAPTURE_MODE_RELAXED; /* a capture in another thread must not notice */
    CUcontext popped;
    if (KS_DRIVER(context_push)(context->handle) != CUDA_SUCCESS)
        return 0;
    KS_DRIVER(exchange_capture_mode)(&relaxed);
    const int64_t end = finish_current(context);
    KS_DRIVER(exchange_capture_mode)(&relaxed);
    KS_DRIVER(context_pop)(&popped);
    return end;
}

/* ---- all contexts of a cell --------------------------------------------- */

/* Primary contexts also come to be without a call that is hooked: the driver
 * is asked which there are. The reference keeps one alive meanwhile. */
static int64_t finish_primary(CUdevice device) {
    unsigned int flags;
    int active = 0;
    struct tracked_context *context = &primary_contexts[device];
    if (KS_DRIVER(primary_get_state)(device, &flags, &active) != CUDA_SUCCESS || active == 0 ||
        KS_DRIVER(primary_retain)(&context->handle, device) != CUDA_SUCCESS)
        return 0;
    const int64_t end = finish(context);
    KS_DRIVER(primary_release)(device);
    return end;
}

int64_t ks_finish(unsigned cell) {
    int64_t last = 0;
    int devices = 0;
    ks_acquire(&lock);
    if (!atomic_load(&closed)) {
        KS_DRIVER(device_get_count)(&devices);
        for (CUdevice device = 0; device < devices && device < DEVICES_MAX; device++) {
            const int64_t end = ks_cell_of_device(device) == (int)cell ? finish_primary(device) : 0;
            last = end > last ? end : last;
        }
        for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
            const bool is_here = contexts[i].handle != NULL && contexts[i].cell == (int)cell;
            const int64_t end = is_here ? finish(&contexts[i]) : 0;
            last = end > last ? end : last;
        }
    }
    ks_release(&lock);
    return last != 0 ? last : ks_now();
}

void ks_contexts_close(void) {
    const int64_t patience = ks_now() + KS_SECOND;
    atomic_store(&closed, true);
    while (!ks_try_acquire(&lock)) {
        if (ks_now() > patience)
            return;
        ks_sleep(KS_MILLISECOND / 10);
    }
    ks_release(&lock);
}

void ks_contexts_forget(void) {
    lock = (ks_lock){0};
    memset(contexts, 0, sizeof contexts);
    memset(primary_contexts, 0, sizeof primary_contexts);
    for (unsigned device = 0; device < DEVICES_MAX; device++)
        atomic_store(&cells_of_devices[device], 0);
}

/* ---- hooks ---------------------------------------------------------------- */

static CUresult may_have_context(CUdevice device) {
    const int cell = ks_cell_of_device(device);
    if (cell == KS_NO_CELL) {
        ks_debug("device %d is not of this claim", device);
        return CUDA_ERROR_NOT_PERMITTED;
    }
    return ks_agent_start() ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
}

static bool track(CUcontext handle, int cell) {
    bool tracked = false;
    ks_acquire(&lock);
    for (unsigned i = 0; i < CONTEXTS_MAX && !tracked; i++) {
        tracked = contexts[i].handle == NULL;
        if (tracked)
            contexts[i] = (struct tracked_context){.handle = handle, .cell = cell};
    }
    ks_release(&lock);
    return tracked;
}

/* A context that cannot be drained must not be. */
static CUresult keep(CUcontext handle, CUdevice device) {
    if (track(handle, ks_cell_of_device(device)))
        return CUDA_SUCCESS;
    KS_REAL(cuCtxDestroy_v2)(handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

#define KS_CREATE_CONTEXT(call)                                                                    \
    CUresult result = may_have_context(device);                                                    \
    if (result == CUDA_SUCCESS)                                                                    \
        result = (call);                                                                           \
    return result == CUDA_SUCCESS ? keep(*context, device) : result

int cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device) {
    KS_CREATE_CONTEXT(KS_REAL(cuCtxCreate)(context, flags, device));
}

int cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
    KS_CREATE_CONTEXT(KS_REAL(cuCtxCreate_v2)(context, flags, device));
}

int cuCtxCreate_v3(CUcontext *context, void *affinities, int count, unsigned int flags,
                   CUdevice device) {
    KS_CREATE_CONTEXT(KS_REAL(cuCtxCreate_v3)(context, affinities, count, flags, device));
}

int cuCtxCreate_v4(CUcontext *context, void *options, unsigned int flags, CUdevice device) {
    KS_CREATE_CONTEXT(KS_REAL(cuCtxCreate_v4)(context, options, flags, device));
}

static CUresult destroy(CUresult (*real)(CUcontext), CUcontext handle) {
    struct tracked_context *tracked = NULL;
    ks_acquire(&lock);
    for (unsigned i = 0; i < CONTEXTS_MAX && tracked == NULL; i++)
        tracked = contexts[i].handle == handle && handle != NULL ? &contexts[i] : NULL;
    if (tracked != NULL)
        discard(tracked);
    const CUresult result = real(handle);
    if (tracked != NULL && result == CUDA_SUCCESS)
        tracked->handle = NULL;
    ks_release(&lock);
    if (result == CUDA_SUCCESS)
        ks_allocations_drop(handle);
    return result;
}

int cuCtxDestroy(CUcontext context) {
    return destroy(KS_REAL(cuCtxDestroy), context);
}

int cuCtxDestroy_v2(CUcontext context) {
    return destroy(KS_REAL(cuCtxDestroy_v2), context);
}

int cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    const CUresult result = may_have_context(device);
    if (result != CUDA_SUCCESS)
        return result;
    return KS_REAL(cuDevicePrimaryCtxRetain)(context, device);
}

static CUcontext handle_of_primary(CUdevice device) {
    CUcontext handle = NULL;
    if (KS_DRIVER(primary_retain)(&handle, device) == CUDA_SUCCESS)
        KS_DRIVER(primary_release)(device);
    return handle;
}

/* Release and reset: where the primary context ended, so did all that was in it. */
static CUresult end_primary(CUresult (*real)(CUdevice), CUdevice device) {
    unsigned int flags;
    int active = 0;
    if (device < 0 || device >= DEVICES_MAX)
        return real(device);
    ks_acquire(&lock);
    KS_DRIVER(primary_get_state)(device, &flags, &active);
    const CUcontext handle = active != 0 ? handle_of_primary(device) : NULL;
    discard(&primary_contexts[device]);
    const CUresult result = real(device);
    active = 1;
    KS_DRIVER(primary_get_state)(device, &flags, &active);
    const bool ended = result == CUDA_SUCCESS && active == 0;
    ks_release(&lock);
    if (ended && handle != NULL)
        ks_allocations_drop(handle);
    return result;
}

int cuDevicePrimaryCtxRelease(CUdevice device) {
    return end_primary(KS_REAL(cuDevicePrimaryCtxRelease), device);
}

int cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return end_primary(KS_REAL(cuDevicePrimaryCtxRelease_v2), device);
}

int cuDevicePrimaryCtxReset(CUdevice device) {
    return end_primary(KS_REAL(cuDevicePrimaryCtxReset), device);
}

int cuDevicePrimaryCtxReset_v2(CUdevice device) {
    return end_primary(KS_REAL(cuDevicePrimaryCtxReset_v2), device);
}

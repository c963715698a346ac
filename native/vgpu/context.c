/*
 * Which contexts there are, on which GPUs of the claim. A context on another
 * GPU is refused: so a launch need not look where it goes.
 */
#include "context.h"

#include "account.h"
#include "agent.h"
#include "capture.h"
#include "claim.h"
#include "driver_calls.h"
#include "hooks.h"
#include "memory_charge.h"
#include "system.h"
#include "timeline.h"

#include <stdatomic.h>
#include <string.h>

#define CONTEXTS_MAX 128
#define DEVICES_MAX  64

struct tracked_context {
    struct ks_timeline timeline; /* its handle NULL = this place is free */
    int cell;
    unsigned attached; /* uses beyond the first, by cuCtxAttach */
};

static ks_lock lock; /* held while the agent is inside the driver: contexts must not end then */
static struct tracked_context contexts[CONTEXTS_MAX];
static struct ks_timeline primary_contexts[DEVICES_MAX];
static atomic_int cells_of_devices[DEVICES_MAX]; /* 0 unknown, else cell + 2 */
static int64_t last_destruction[KS_CELLS_MAX];   /* of a context: its work was done by then */
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

/* ---- all contexts of a cell --------------------------------------------- */

/* Does `visit` for each context of a cell, until one answers false. */
typedef bool visitor(struct ks_timeline *timeline, void *data);

/* Until leave_driver() a capture in another thread does not notice what this one asks. Only where
 * there is a context: the call would make one. */
static int enter_driver(void) {
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    KS_DRIVER(exchange_capture_mode)(&mode);
    return mode;
}

static void leave_driver(int mode) {
    KS_DRIVER(exchange_capture_mode)(&mode);
}

static bool has_primary_context(CUdevice device) {
    unsigned int flags;
    int active = 0;
    return KS_DRIVER(primary_get_state)(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

/* Primary contexts also come to be without a call that is hooked: the driver
 * is asked which there are. The reference keeps one alive meanwhile. */
static bool visit_primary(CUdevice device, visitor *visit, void *data) {
    bool go_on = true;
    struct ks_timeline *timeline = &primary_contexts[device];
    if (!has_primary_context(device))
        return true;
    const int mode = enter_driver();
    if (KS_DRIVER(primary_retain)(&timeline->handle, device) == CUDA_SUCCESS) {
        go_on = visit(timeline, data);
        KS_DRIVER(primary_release)(device);
    }
    leave_driver(mode);
    return go_on;
}

static bool visit_created(struct tracked_context *context, visitor *visit, void *data) {
    const int mode = enter_driver();
    const bool go_on = visit(&context->timeline, data);
    leave_driver(mode);
    return go_on;
}

/* Devices that this process sees, as far as they are looked at. */
static int count_devices(void) {
    int devices = 0;
    KS_DRIVER(device_get_count)(&devices);
    return devices < DEVICES_MAX ? devices : DEVICES_MAX;
}

/* False: a visit said so. */
static bool visit_all(unsigned cell, visitor *visit, void *data) {
    const int devices = count_devices();
    bool go_on = true;
    for (CUdevice device = 0; device < devices && go_on; device++) {
        if (ks_cell_of_device(device) == (int)cell)
            go_on = visit_primary(device, visit, data);
    }
    for (unsigned i = 0; i < CONTEXTS_MAX && go_on; i++) {
        if (contexts[i].timeline.handle != NULL && contexts[i].cell == (int)cell)
            go_on = visit_created(&contexts[i], visit, data);
    }
    return go_on;
}

uint64_t ks_cells_in_use(void) {
    uint64_t cells = 0;
    const int devices = count_devices();
    ks_acquire(&lock);
    for (CUdevice device = 0; device < devices; device++) {
        const int cell = ks_cell_of_device(device);
        if (cell != KS_NO_CELL && has_primary_context(device))
            cells |= UINT64_C(1) << cell;
    }
    for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
        if (contexts[i].timeline.handle != NULL)
            cells |= UINT64_C(1) << contexts[i].cell;
    }
    ks_release(&lock);
    return cells;
}

static bool finish_begin(struct ks_timeline *timeline, void *unused) {
    (void)unused;
    ks_timeline_finish_begin(timeline);
    return true;
}

bool ks_finish_begin(unsigned cell) {
    ks_acquire(&lock);
    const bool may_record = !ks_is_capturing();
    if (may_record && !atomic_load(&closed))
        visit_all(cell, finish_begin, NULL);
    ks_release(&lock);
    return may_record;
}

static bool finish_end(struct ks_timeline *timeline, void *last) {
    int64_t end;
    if (!ks_timeline_finish_end(timeline, &end))
        return false;
    if (end > *(int64_t *)last)
        *(int64_t *)last = end;
    return true;
}

bool ks_finish_end(unsigned cell, int64_t *end) {
    ks_acquire(&lock);
    int64_t last = last_destruction[cell];
    const bool is_over = atomic_load(&closed) || visit_all(cell, finish_end, &last);
    ks_release(&lock);
    *end = last != 0 ? last : ks_now();
    return is_over;
}

static bool mark(struct ks_timeline *timeline, void *marker) {
    ks_timeline_mark(timeline, *(unsigned *)marker);
    return true;
}

/* Waits neither for the agent, which may be waiting for the GPU, nor for the end of a capture. */
static bool try_visit_all(unsigned cell, visitor *visit, void *data) {
    if (!ks_try_acquire(&lock))
        return false;
    const bool may_ask = !ks_is_capturing();
    if (may_ask && !atomic_load(&closed))
        visit_all(cell, visit, data);
    ks_release(&lock);
    return may_ask;
}

bool ks_mark(unsigned cell, unsigned marker) {
    return try_visit_all(cell, mark, &marker);
}

struct question {
    unsigned marker;
    bool passed;
};

static bool ask(struct ks_timeline *timeline, void *data) {
    struct question *question = data;
    question->passed = ks_timeline_has_passed(timeline, question->marker);
    return question->passed;
}

bool ks_has_passed(unsigned cell, unsigned marker) {
    struct question question = {.marker = marker, .passed = true};
    return try_visit_all(cell, ask, &question) && question.passed;
}

struct passing {
    unsigned marker;
    int64_t latest;
};

static bool ask_when(struct ks_timeline *timeline, void *data) {
    struct passing *passing = data;
    const int64_t time = ks_timeline_passed_at(timeline, passing->marker);
    passing->latest = time > passing->latest ? time : passing->latest;
    return true;
}

int64_t ks_passed_at(unsigned cell, unsigned marker) {
    struct passing passing = {.marker = marker};
    try_visit_all(cell, ask_when, &passing);
    return passing.latest;
}

struct span {
    unsigned earlier, later;
    int64_t longest;
};

static bool measure(struct ks_timeline *timeline, void *data) {
    struct span *span = data;
    const int64_t time = ks_timeline_between(timeline, span->earlier, span->later);
    span->longest = time > span->longest ? time : span->longest;
    return true;
}

int64_t ks_between(unsigned cell, unsigned earlier, unsigned later) {
    struct span span = {.earlier = earlier, .later = later};
    try_visit_all(cell, measure, &span);
    return span.longest;
}

void ks_contexts_hold(void) {
    ks_acquire(&lock);
}

void ks_contexts_release(void) {
    ks_release(&lock);
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
    memset(last_destruction, 0, sizeof last_destruction);
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
    ks_account_join();
    return ks_agent_start() ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
}

static bool track(CUcontext handle, int cell) {
    bool tracked = false;
    ks_acquire(&lock);
    for (unsigned i = 0; i < CONTEXTS_MAX && !tracked; i++) {
        tracked = contexts[i].timeline.handle == NULL;
        if (tracked)
            contexts[i] = (struct tracked_context){.timeline.handle = handle, .cell = cell};
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

int cuGLCtxCreate(CUcontext *context, unsigned int flags, CUdevice device) {
    KS_CREATE_CONTEXT(KS_REAL(cuGLCtxCreate)(context, flags, device));
}

int cuGLCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
    KS_CREATE_CONTEXT(KS_REAL(cuGLCtxCreate_v2)(context, flags, device));
}

int cuVDPAUCtxCreate(CUcontext *context, unsigned int flags, CUdevice device, uint32_t display,
                     void *get) {
    KS_CREATE_CONTEXT(KS_REAL(cuVDPAUCtxCreate)(context, flags, device, display, get));
}

int cuVDPAUCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device, uint32_t display,
                        void *get) {
    KS_CREATE_CONTEXT(KS_REAL(cuVDPAUCtxCreate_v2)(context, flags, device, display, get));
}

/* The caller holds the lock. */
static struct tracked_context *find_tracked(CUcontext handle) {
    for (unsigned i = 0; i < CONTEXTS_MAX && handle != NULL; i++) {
        if (contexts[i].timeline.handle == handle)
            return &contexts[i];
    }
    return NULL;
}

/* A context's end waits for its work: better here, where nobody waits for our lock. */
static void wait_for_work(CUcontext handle) {
    CUcontext popped;
    if (KS_DRIVER(context_push)(handle) != CUDA_SUCCESS)
        return;
    KS_DRIVER(context_synchronize)();
    KS_DRIVER(context_pop)(&popped);
}

static CUresult destroy(CUresult (*real)(CUcontext), CUcontext handle) {
    wait_for_work(handle);
    ks_acquire(&lock);
    struct tracked_context *tracked = find_tracked(handle);
    if (tracked != NULL)
        ks_timeline_discard(&tracked->timeline);
    const CUresult result = real(handle);
    if (tracked != NULL && result == CUDA_SUCCESS) {
        tracked->timeline.handle = NULL;
        last_destruction[tracked->cell] = ks_now();
    }
    ks_release(&lock);
    if (result == CUDA_SUCCESS) {
        ks_memory_of_context_ended(handle);
        ks_captures_drop(handle);
    }
    return result;
}

int cuCtxDestroy(CUcontext context) {
    return destroy(KS_REAL(cuCtxDestroy), context);
}

int cuCtxDestroy_v2(CUcontext context) {
    return destroy(KS_REAL(cuCtxDestroy_v2), context);
}

static bool change_uses(CUcontext handle, int change) {
    ks_acquire(&lock);
    struct tracked_context *tracked = find_tracked(handle);
    const bool changed = tracked != NULL && (change > 0 || tracked->attached > 0);
    if (changed)
        tracked->attached += (unsigned)change;
    ks_release(&lock);
    return changed;
}

int cuCtxAttach(CUcontext *context, unsigned int flags) {
    const CUresult result = KS_REAL(cuCtxAttach)(context, flags);
    if (result == CUDA_SUCCESS)
        change_uses(*context, 1);
    return result;
}

int cuCtxDetach(CUcontext context) {
    if (change_uses(context, -1))
        return KS_REAL(cuCtxDetach)(context);
    return destroy(KS_REAL(cuCtxDetach), context);
}

/* Retains the primary context of its GPU, whose events are behind its own work too. */
int cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc resources, CUdevice device,
                     unsigned int flags) {
    const CUresult result = may_have_context(device);
    if (result != CUDA_SUCCESS)
        return result;
    return KS_REAL(cuGreenCtxCreate)(context, resources, device, flags);
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
    const int cell = ks_cell_of_device(device);
    if (cell == KS_NO_CELL)
        return real(device);
    ks_acquire(&lock);
    const CUcontext handle = has_primary_context(device) ? handle_of_primary(device) : NULL;
    ks_timeline_discard(&primary_contexts[device]);
    const CUresult result = real(device);
    const bool ended = handle != NULL && result == CUDA_SUCCESS && !has_primary_context(device);
    if (ended)
        last_destruction[cell] = ks_now();
    ks_release(&lock);
    if (ended) {
        ks_memory_of_context_ended(handle);
        ks_captures_drop(handle);
    }
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

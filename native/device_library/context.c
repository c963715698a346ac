/*
 * The list of contexts, and the GPU of each.
 */
#include "context.h"

#include "context_list.h"
#include "lock.h"
#include "lookup/driver_calls.h"
#include "memory/allocations.h"
#include "session.h"
#include "streams.h"
#include "system.h"
#include "timeline.h"

#include <stdatomic.h>
#include <string.h>

#define CONTEXTS_MAX 128
#define DEVICES_MAX  64

struct tracked_context {
    struct ks_timeline timeline; /* handle NULL: this entry is free */
    int cell;
    unsigned attached; /* uses beyond the first, by cuCtxAttach */
};

/* The driver does not say whether a release is the last, which ends the context, and the last one
 * waits for its work. So threads are inside the driver with it without the lock, and the context is
 * not visited until they are back. */
struct primary_context {
    struct ks_timeline timeline;
    unsigned releasing; /* threads that have the driver release it */
    /* As long as there are any: */
    CUcontext handle;      /* NULL: none of them found a context */
    unsigned long long id; /* of the context that was seen last */
    bool awaits_end;       /* its end was not seen yet */
};

static ks_lock lock; /* held while the library is inside the driver: no context may end then */
static struct tracked_context contexts[CONTEXTS_MAX];
static struct primary_context primary_contexts[DEVICES_MAX];
static atomic_int cells_of_devices[DEVICES_MAX]; /* 0 unknown, else cell + 2 */
static int64_t last_destruction[KS_CELLS_MAX];   /* of a context, whose work was done by then */
static atomic_bool closed;
static atomic_bool any_is_green;
static ks_context_listener *const *_Atomic listeners;

/* ---- devices and cells ------------------------------------------------- */

static int look_up_cell(CUdevice device) {
    CUuuid uuid;
    if (KS_DRIVER(device_get_uuid_v2)(&uuid, device) != CUDA_SUCCESS &&
        KS_DRIVER(device_get_uuid)(&uuid, device) != CUDA_SUCCESS)
        return KS_NO_CELL;
    return ks_session_cell_of_uuid(uuid.bytes);
}

int ks_cell_of_device(CUdevice device) {
    if (!ks_session_is_open() || device < 0 || device >= DEVICES_MAX)
        return KS_NO_CELL;
    int known = atomic_load_explicit(&cells_of_devices[device], memory_order_relaxed);
    if (known == 0) {
        known = look_up_cell(device) + 2;
        atomic_store_explicit(&cells_of_devices[device], known, memory_order_relaxed);
    }
    return known - 2;
}

bool ks_device_exists(CUdevice device) {
    int devices = 0;
    return KS_DRIVER(device_get_count)(&devices) == CUDA_SUCCESS && device >= 0 && device < devices;
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

/* Until leave_driver() the calls of this thread do not invalidate a capture in another. Only called
 * where there is a context: the driver would otherwise create one. */
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

/* A primary context may exist without a hooked call, so the driver is asked. The reference keeps it
 * alive during the visit. */
static bool visit_primary(CUdevice device, ks_context_visitor *visit, void *data) {
    bool go_on = true;
    struct ks_timeline *timeline = &primary_contexts[device].timeline;
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

static bool visit_created(struct tracked_context *context, ks_context_visitor *visit, void *data) {
    const int mode = enter_driver();
    const bool go_on = visit(&context->timeline, data);
    leave_driver(mode);
    return go_on;
}

/* Devices that this process sees, up to DEVICES_MAX. */
static int count_devices(void) {
    int devices = 0;
    KS_DRIVER(device_get_count)(&devices);
    return devices < DEVICES_MAX ? devices : DEVICES_MAX;
}

bool ks_contexts_visit(unsigned cell, ks_context_visitor *visit, void *data) {
    const int devices = count_devices();
    bool go_on = true, all = true;
    for (CUdevice device = 0; device < devices && go_on; device++) {
        if (ks_cell_of_device(device) != (int)cell)
            continue;
        if (primary_contexts[device].releasing > 0)
            all = false;
        else
            go_on = visit_primary(device, visit, data);
    }
    for (unsigned i = 0; i < CONTEXTS_MAX && go_on; i++) {
        if (contexts[i].timeline.handle != NULL && contexts[i].cell == (int)cell)
            go_on = visit_created(&contexts[i], visit, data);
    }
    return go_on && all;
}

uint64_t ks_cells_in_use(void) {
    uint64_t cells = 0;
    const int devices = count_devices();
    ks_acquire(&lock, KS_LOCK_CONTEXTS);
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

/* ---- their begin and end -------------------------------------------------- */

bool ks_context_track(CUcontext handle, int cell) {
    bool tracked = false;
    ks_acquire(&lock, KS_LOCK_CONTEXTS);
    for (unsigned i = 0; i < CONTEXTS_MAX && !tracked; i++) {
        tracked = contexts[i].timeline.handle == NULL;
        if (tracked)
            contexts[i] = (struct tracked_context){.timeline.handle = handle, .cell = cell};
    }
    ks_release(&lock);
    return tracked;
}

/* The caller holds the lock. */
static struct tracked_context *find_tracked(CUcontext handle) {
    for (unsigned i = 0; i < CONTEXTS_MAX && handle != NULL; i++) {
        if (contexts[i].timeline.handle == handle)
            return &contexts[i];
    }
    return NULL;
}

static CUcontext handle_of_primary(CUdevice device) {
    CUcontext handle = NULL;
    if (primary_contexts[device].handle != NULL)
        return primary_contexts[device].handle;
    if (KS_DRIVER(primary_retain)(&handle, device) == CUDA_SUCCESS)
        KS_DRIVER(primary_release)(device);
    return handle;
}

/* The work and the memory of a green context belong to the primary context of its GPU. The context
 * is current; the caller holds the lock. */
static CUcontext owner_of_current(CUcontext context) {
    CUdevice device;
    if (find_tracked(context) != NULL || KS_DRIVER(context_get_device)(&device) != CUDA_SUCCESS ||
        !has_primary_context(device))
        return context;
    const CUcontext primary = handle_of_primary(device);
    return primary != NULL ? primary : context;
}

void ks_contexts_expect_green(void) {
    atomic_store(&any_is_green, true);
}

CUcontext ks_owning_context(void) {
    const CUcontext context = ks_current_context();
    if (context == NULL || !atomic_load_explicit(&any_is_green, memory_order_relaxed))
        return context;
    ks_acquire(&lock, KS_LOCK_CONTEXTS);
    const CUcontext owner = owner_of_current(context);
    ks_release(&lock);
    return owner;
}

void ks_contexts_set_listeners(ks_context_listener *const *list) {
    atomic_store(&listeners, list);
}

static void call_listeners(CUcontext ended, uint64_t before) {
    ks_context_listener *const *listener = atomic_load(&listeners);
    for (; listener != NULL && *listener != NULL; listener++)
        (*listener)(ended, before);
}

CUresult ks_context_end(CUresult (*real)(CUcontext), CUcontext handle) {
    ks_acquire(&lock, KS_LOCK_CONTEXTS);
    struct tracked_context *tracked = find_tracked(handle);
    if (tracked != NULL)
        ks_timeline_discard(&tracked->timeline);
    const uint64_t before = ks_allocations_tick();
    const CUresult result = real(handle);
    if (tracked != NULL && result == CUDA_SUCCESS) {
        tracked->timeline.handle = NULL;
        ks_streams_drop(handle);
        last_destruction[tracked->cell] = ks_now();
    }
    ks_release(&lock);
    if (result == CUDA_SUCCESS)
        call_listeners(handle, before);
    return result;
}

bool ks_context_change_uses(CUcontext handle, int change) {
    ks_acquire(&lock, KS_LOCK_CONTEXTS);
    struct tracked_context *tracked = find_tracked(handle);
    const bool changed = tracked != NULL && (change > 0 || tracked->attached > 0);
    if (changed)
        tracked->attached += (unsigned)change;
    ks_release(&lock);
    return changed;
}

/* 0: unknown, as in a context that is in error. */
static unsigned long long id_of(CUcontext handle) {
    unsigned long long id = 0;
    KS_DRIVER(context_get_id)(handle, &id);
    return id;
}

/* Others may be releasing an earlier one, which has ended, and the caller a new one. */
static void begin_release(struct primary_context *primary, CUdevice device) {
    if (!primary->awaits_end && has_primary_context(device)) {
        primary->handle = handle_of_primary(device);
        primary->id = primary->handle != NULL ? id_of(primary->handle) : 0;
        primary->awaits_end = primary->handle != NULL;
    }
    primary->releasing++;
}

/* The events of a context end with it. Another thread may have made the next one already, with the
 * same handle; its end is awaited too, by those who have begun to release it. What the next one
 * allocates cannot be told from what the first did, so that stays charged until none is left. */
static CUcontext see_end(struct primary_context *primary, CUdevice device, bool exists) {
    const unsigned long long id = exists && primary->awaits_end ? id_of(primary->handle) : 0;
    if (!primary->awaits_end || (exists && (id == 0 || primary->id == 0 || id == primary->id)))
        return NULL;
    primary->timeline = (struct ks_timeline){0};
    primary->awaits_end = exists;
    primary->id = id;
    if (!exists)
        ks_streams_drop(primary->handle);
    last_destruction[ks_cell_of_device(device)] = ks_now();
    return exists || find_tracked(primary->handle) != NULL ? NULL : primary->handle;
}

/* The handle with which no context is left, or NULL. */
static CUcontext end_release(struct primary_context *primary, CUdevice device) {
    const CUcontext ended = see_end(primary, device, has_primary_context(device));
    if (--primary->releasing == 0) {
        primary->handle = NULL;
        primary->awaits_end = false;
    }
    return ended;
}

uint64_t ks_contexts_begin_release(uint64_t devices) {
    uint64_t begun = 0;
    const int visible = count_devices();
    for (CUdevice device = 0; device < visible; device++) {
        if ((devices >> device & 1) == 0 || ks_cell_of_device(device) == KS_NO_CELL)
            continue;
        begin_release(&primary_contexts[device], device);
        begun |= UINT64_C(1) << device;
    }
    return begun;
}

void ks_contexts_end_release(uint64_t devices) {
    CUcontext ended[DEVICES_MAX];
    unsigned count = 0;
    const uint64_t before = ks_allocations_tick(); /* then it is seen whether a context is left */
    for (CUdevice device = 0; device < DEVICES_MAX; device++) {
        if ((devices >> device & 1) == 0)
            continue;
        ended[count] = end_release(&primary_contexts[device], device);
        count += ended[count] != NULL;
    }
    ks_release(&lock);
    for (unsigned i = 0; i < count; i++)
        call_listeners(ended[i], before);
}

CUresult ks_context_end_primary(CUresult (*real)(CUdevice), CUdevice device) {
    if (ks_cell_of_device(device) == KS_NO_CELL)
        return real(device);
    const int cancel = ks_forbid_cancel();
    ks_acquire(&lock, KS_LOCK_CONTEXTS);
    const uint64_t begun = ks_contexts_begin_release(UINT64_C(1) << device);
    ks_release(&lock);
    const CUresult result = real(device);
    ks_acquire(&lock, KS_LOCK_CONTEXTS);
    ks_contexts_end_release(begun);
    ks_allow_cancel(cancel);
    return result;
}

/* ---- their streams --------------------------------------------------------- */

/* A green context can be current to one thread only, so what needs that is done here, in the thread
 * that uses it. */
static void find_owner(struct ks_stream *stream) {
    CUcontext popped;
    stream->owner = stream->context;
    if (find_tracked(stream->context) != NULL ||
        KS_DRIVER(context_push)(stream->context) != CUDA_SUCCESS)
        return;
    stream->owner = owner_of_current(stream->context);
    if (stream->owner != stream->context &&
        KS_DRIVER(event_create)(&stream->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        stream->event = NULL;
    KS_DRIVER(context_pop)(&popped);
}

static bool track_stream(struct ks_stream stream) {
    find_owner(&stream);
    const bool tracked = ks_streams_add(stream);
    if (!tracked && stream.event != NULL)
        KS_DRIVER(event_destroy)(stream.event);
    return tracked;
}

bool ks_context_track_stream(CUstream handle, unsigned int flags) {
    struct ks_stream stream = {.handle = handle, .flags = flags};
    ks_acquire(&lock, KS_LOCK_CONTEXTS);
    const int mode = enter_driver();
    if (KS_DRIVER(stream_get_context)(handle, &stream.context) != CUDA_SUCCESS)
        stream.context = ks_current_context();
    const bool tracked = track_stream(stream);
    leave_driver(mode);
    ks_release(&lock);
    return tracked;
}

bool ks_context_track_green(CUgreenCtx green) {
    struct ks_stream all = {
        .handle = (CUstream)green, .green = green, .flags = CU_STREAM_NON_BLOCKING};
    ks_acquire(&lock, KS_LOCK_CONTEXTS);
    const int mode = enter_driver();
    const bool tracked =
        KS_DRIVER(context_of_green)(&all.context, green) == CUDA_SUCCESS && track_stream(all);
    leave_driver(mode);
    ks_release(&lock);
    return tracked;
}

/* ---- the lock, and the end of it all --------------------------------------- */

void ks_contexts_hold(void) {
    ks_acquire(&lock, KS_LOCK_CONTEXTS);
}

bool ks_contexts_try_hold(void) {
    return ks_try_acquire(&lock, KS_LOCK_CONTEXTS);
}

void ks_contexts_release(void) {
    ks_release(&lock);
}

bool ks_contexts_are_closed(void) {
    return atomic_load(&closed);
}

int64_t ks_contexts_last_end(unsigned cell) {
    return last_destruction[cell];
}

void ks_contexts_close(void) {
    const int64_t deadline = ks_now() + KS_SECOND;
    atomic_store(&closed, true);
    while (!ks_try_acquire(&lock, KS_LOCK_CONTEXTS)) {
        if (ks_now() > deadline)
            return;
        ks_sleep(KS_MILLISECOND / 10);
    }
    ks_release(&lock);
}

void ks_contexts_forget(void) {
    lock = (ks_lock){0};
    memset(contexts, 0, sizeof contexts);
    ks_streams_forget();
    memset(primary_contexts, 0, sizeof primary_contexts);
    memset(last_destruction, 0, sizeof last_destruction);
    for (unsigned device = 0; device < DEVICES_MAX; device++)
        atomic_store(&cells_of_devices[device], 0);
}

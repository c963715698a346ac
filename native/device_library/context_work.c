/*
 * When a GPU has finished the work of all contexts of this process.
 */
#include "context.h"
#include "context_list.h"
#include "lookup/driver_calls.h"
#include "session.h"
#include "streams.h"
#include "system.h"
#include "timeline.h"

static bool prepare(struct ks_timeline *timeline, void *unused) {
    (void)unused;
    ks_timeline_prepare(timeline);
    return true;
}

void ks_contexts_prepare(CUdevice device) {
    const int cell = ks_cell_of_device(device);
    if (cell == KS_NO_CELL || ks_driver_has(KS_CALL_context_record_event))
        return;
    ks_contexts_hold();
    if (!ks_contexts_are_closed())
        ks_contexts_visit((unsigned)cell, prepare, NULL);
    ks_contexts_release();
}

static bool gather(struct ks_timeline *timeline, void *unused) {
    (void)unused;
    ks_timeline_gather(timeline);
    return true;
}

static void visit_all_cells(ks_context_visitor *visit, void *data) {
    for (unsigned cell = 0; cell < ks_session_cells() && !ks_contexts_are_closed(); cell++)
        ks_contexts_visit(cell, visit, data);
}

void ks_contexts_gather(void) {
    visit_all_cells(gather, NULL);
}

static bool follow(struct ks_timeline *timeline, void *data) {
    struct ks_stream *stream = data;
    if (timeline->handle == stream->owner)
        ks_timeline_follow(timeline, stream);
    return timeline->handle != stream->owner;
}

CUresult ks_context_end_stream(CUresult (*real)(CUstream), CUstream stream) {
    ks_contexts_hold();
    struct ks_stream *tracked = ks_streams_find(stream);
    if (tracked != NULL && ks_timeline_must_follow())
        visit_all_cells(follow, tracked);
    const CUresult result = real(stream);
    if (tracked != NULL && result == CUDA_SUCCESS)
        ks_streams_remove(tracked);
    ks_contexts_release();
    return result;
}

static bool follow_green(struct ks_stream *stream, void *timeline) {
    ks_timeline_follow(timeline, stream);
    return true;
}

static bool follow_streams_of(struct ks_timeline *timeline, void *data) {
    const CUcontext *green = data;
    ks_streams_visit_green(*green, timeline->handle, follow_green, timeline);
    return true;
}

/* A primary context may end with its last green one. */
CUresult ks_context_end_green(CUresult (*real)(CUgreenCtx), CUgreenCtx handle, CUcontext *ended) {
    CUcontext green = NULL;
    const int cancel = ks_forbid_cancel();
    ks_contexts_hold();
    if (KS_DRIVER(context_of_green)(&green, handle) != CUDA_SUCCESS)
        green = NULL;
    if (green != NULL && ks_timeline_must_follow())
        visit_all_cells(follow_streams_of, &green);
    const uint64_t begun = ks_contexts_begin_release(~UINT64_C(0));
    ks_contexts_release();
    const CUresult result = real(handle);
    *ended = result == CUDA_SUCCESS ? green : NULL;
    ks_contexts_hold();
    if (*ended != NULL)
        ks_streams_drop(green);
    ks_contexts_end_release(begun);
    ks_allow_cancel(cancel);
    return result;
}

static bool finish_begin(struct ks_timeline *timeline, void *unused) {
    (void)unused;
    ks_timeline_finish_begin(timeline);
    return true;
}

bool ks_finish_begin(unsigned cell) {
    ks_contexts_hold();
    const bool begun = ks_contexts_are_closed() || ks_contexts_visit(cell, finish_begin, NULL);
    ks_contexts_release();
    return begun;
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
    ks_contexts_hold();
    int64_t last = ks_contexts_last_end(cell);
    const bool is_over = ks_contexts_are_closed() || ks_contexts_visit(cell, finish_end, &last);
    ks_contexts_release();
    *end = last != 0 ? last : ks_now();
    return is_over;
}

static bool mark(struct ks_timeline *timeline, void *marker) {
    ks_timeline_mark(timeline, *(unsigned *)marker);
    return true;
}

/* Returns false instead of waiting for another thread that is inside the driver, be it to release a
 * context. */
static bool try_visit_all(unsigned cell, ks_context_visitor *visit, void *data) {
    if (!ks_contexts_try_hold())
        return false;
    const bool all = ks_contexts_are_closed() || ks_contexts_visit(cell, visit, data);
    ks_contexts_release();
    return all;
}

bool ks_mark(unsigned cell, unsigned marker) {
    return try_visit_all(cell, mark, &marker);
}

struct check {
    unsigned marker;
    bool passed;
};

static bool check_passed(struct ks_timeline *timeline, void *data) {
    struct check *check = data;
    check->passed = ks_timeline_has_passed(timeline, check->marker);
    return check->passed;
}

bool ks_has_passed(unsigned cell, unsigned marker) {
    struct check check = {.marker = marker, .passed = true};
    return try_visit_all(cell, check_passed, &check) && check.passed;
}

struct passing {
    unsigned marker;
    int64_t latest;
};

static bool find_passing(struct ks_timeline *timeline, void *data) {
    struct passing *passing = data;
    const int64_t time = ks_timeline_passed_at(timeline, passing->marker);
    passing->latest = time > passing->latest ? time : passing->latest;
    return true;
}

int64_t ks_passed_at(unsigned cell, unsigned marker) {
    struct passing passing = {.marker = marker};
    try_visit_all(cell, find_passing, &passing);
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

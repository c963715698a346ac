#include "streams.h"

#include "lookup/driver_calls.h"

#include <string.h>

static struct ks_stream streams[KS_STREAMS_MAX];
static unsigned end; /* no entry from here on is used */

bool ks_streams_add(struct ks_stream stream) {
    unsigned place = 0;
    while (place < end && streams[place].handle != NULL)
        place++;
    if (place == KS_STREAMS_MAX)
        return false;
    streams[place] = stream;
    KS_DRIVER(context_get_id)(stream.owner, &streams[place].id);
    end = place < end ? end : place + 1;
    return true;
}

struct ks_stream *ks_streams_find(CUstream handle) {
    for (unsigned i = 0; i < end && handle != NULL; i++) {
        if (streams[i].handle == handle)
            return &streams[i];
    }
    return NULL;
}

static void clear(struct ks_stream *stream) {
    *stream = (struct ks_stream){0};
    while (end > 0 && streams[end - 1].handle == NULL)
        end--;
}

void ks_streams_remove(struct ks_stream *stream) {
    if (stream->event != NULL)
        KS_DRIVER(event_destroy)(stream->event);
    clear(stream);
}

bool ks_streams_visit(CUcontext owner, unsigned long long id, ks_stream_visitor *visit,
                      void *data) {
    for (unsigned i = 0; i < end; i++) {
        if (streams[i].handle == NULL || streams[i].owner != owner)
            continue;
        if (streams[i].id != id)
            clear(&streams[i]); /* its context has ended, and another has the same handle */
        else if (!visit(&streams[i], data))
            return false;
    }
    return true;
}

void ks_streams_visit_green(CUcontext green, CUcontext owner, ks_stream_visitor *visit,
                            void *data) {
    for (unsigned i = 0; i < end; i++) {
        if (streams[i].handle != NULL && streams[i].context == green && streams[i].owner == owner)
            visit(&streams[i], data);
    }
}

void ks_streams_drop(CUcontext context) {
    for (unsigned i = end; i > 0; i--) {
        if (streams[i - 1].owner == context || streams[i - 1].context == context)
            clear(&streams[i - 1]);
    }
}

void ks_streams_forget(void) {
    memset(streams, 0, sizeof streams);
    end = 0;
}

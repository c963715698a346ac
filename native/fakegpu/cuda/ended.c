#include "ended.h"

#include "capture.h"

/* driver.lock. */
static struct ended kept;

void ended_take(struct ended *ended, struct CUctx_st *context) {
    while (context->streams != NULL) {
        struct CUstream_st *stream = context->streams;
        context->streams = stream->next;
        __atomic_store_n(&stream->ended, true, __ATOMIC_RELAXED);
        stream->next = ended->streams;
        ended->streams = stream;
    }
    while (context->events != NULL) {
        struct CUevent_st *event = context->events;
        event_unlist(event);
        __atomic_store_n(&event->ended, true, __ATOMIC_RELAXED);
        event->later = ended->events;
        ended->events = event;
    }
}

void ended_keep(struct ended *ended) {
    struct CUstream_st **last_stream = &ended->streams;
    for (; *last_stream != NULL; last_stream = &(*last_stream)->next)
        capture_lose(*last_stream);
    struct CUevent_st **last_event = &ended->events;
    for (; *last_event != NULL; last_event = &(*last_event)->later)
        event_clear(*last_event);
    pthread_mutex_lock(&driver.lock);
    *last_stream = kept.streams;
    *last_event = kept.events;
    kept = *ended;
    pthread_mutex_unlock(&driver.lock);
}

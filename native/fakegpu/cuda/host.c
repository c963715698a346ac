/* Functions of the program in a stream: run in order, one at a time, each when all the work before
 * it in its stream is over. */
#include "host.h"

#include <signal.h>
#include <stdlib.h>

struct call {
    const struct operation *operation;
    void (*done)(void *);
    void *argument;
    struct call *next;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t added;
    struct call *first;
    bool started;
} calls = {.lock = PTHREAD_MUTEX_INITIALIZER, .added = PTHREAD_COND_INITIALIZER};

/* Not found through a call: every function of the driver asks. */
static __attribute__((tls_model("initial-exec"))) _Thread_local bool calling;

bool in_host_function(void) {
    return calling;
}

bool driver_thread(void *(*run)(void *)) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&thread, NULL, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_detach(thread);
    return started;
}

static void call(const struct operation *operation) {
    calling = true;
    if (operation->kind == OPERATION_HOST)
        operation->host.fn(operation->host.userData);
    else
        operation->callback.function(operation->callback.stream, CUDA_SUCCESS,
                                     operation->callback.data);
    calling = false;
}

static void *run(void *unused) {
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&calls.lock);
        while (calls.first == NULL)
            pthread_cond_wait(&calls.added, &calls.lock);
        struct call *next = calls.first;
        calls.first = next->next;
        pthread_mutex_unlock(&calls.lock);
        call(next->operation);
        next->done(next->argument);
        free(next);
    }
    return NULL;
}

/* Without memory or a thread the dispatcher calls by itself: later work waits, but is not lost. */
void host_call(const struct operation *operation, void (*done)(void *), void *argument) {
    struct call *added = malloc(sizeof *added);
    pthread_mutex_lock(&calls.lock);
    if (!calls.started)
        calls.started = driver_thread(run);
    bool handed_over = added != NULL && calls.started;
    if (handed_over) {
        *added = (struct call){operation, done, argument, NULL};
        struct call **place = &calls.first;
        while (*place != NULL)
            place = &(*place)->next;
        *place = added;
        pthread_cond_signal(&calls.added);
    }
    pthread_mutex_unlock(&calls.lock);
    if (handed_over)
        return;
    free(added);
    call(operation);
    done(argument);
}

/* ---- the API -------------------------------------------------------------------- */

API cuLaunchHostFunc_v2(CUstream handle, CUhostFn function, void *data, unsigned int sync_mode) {
    struct CUstream_st *stream;
    REQUIRE(function != NULL && sync_mode <= 1, CUDA_ERROR_INVALID_VALUE);
    TRY(find_stream(handle, &stream));
    return stream_do(stream, &(struct operation){
                                 .kind = OPERATION_HOST, .host = {function, data}
    });
}

API cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
    return cuLaunchHostFunc_v2(stream, function, data, 0);
}

API cuStreamAddCallback(CUstream handle, CUstreamCallback function, void *data,
                        unsigned int flags) {
    struct CUstream_st *stream;
    REQUIRE(function != NULL && flags == 0, CUDA_ERROR_INVALID_VALUE);
    TRY(find_stream(handle, &stream));
    return stream_do(stream, &(struct operation){
                                 .kind = OPERATION_CALLBACK, .callback = {function, data, handle}
    });
}

API cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *data) {
    return cuLaunchHostFunc_v2(per_thread(stream), function, data, 0);
}

/* How long calls take beyond what the fake needs for them: what the profile says. */
#include <time.h>

#include "driver.h"

void sync_slowly(void) {
    uint32_t microseconds = driver.engine.profile.sync_us;
    const struct timespec time = {microseconds / 1000000, (long)(microseconds % 1000000) * 1000};
    if (microseconds > 0)
        clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* As with the real driver the thread is on its CPU meanwhile. */
static void work(uint32_t time_us) {
    uint64_t end_ns = now_ns() + time_us * UINT64_C(1000);
    while (now_ns() < end_ns)
        ;
}

void call_costs(const struct cost *cost, struct CUctx_st *context) {
    static pthread_mutex_t all_calls = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_t *lock = cost->lock == LOCK_CONTEXT   ? &context->calls
                            : cost->lock == LOCK_PROCESS ? &all_calls
                                                         : NULL;
    if (cost->time_us == 0)
        return;
    if (lock != NULL)
        pthread_mutex_lock(lock);
    work(cost->time_us);
    if (lock != NULL)
        pthread_mutex_unlock(lock);
}

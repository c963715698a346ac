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
void call_costs(uint32_t microseconds) {
    if (microseconds == 0)
        return;
    uint64_t end_ns = now_ns() + microseconds * UINT64_C(1000);
    while (now_ns() < end_ns)
        ;
}

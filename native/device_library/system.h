/*
 * What the library needs of the kernel: the clock, waiting and waking, cancellation, descriptors.
 */
#ifndef KS_SYSTEM_H
#define KS_SYSTEM_H

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define KS_MILLISECOND INT64_C(1000000)
#define KS_SECOND      INT64_C(1000000000)

/* Nanoseconds of CLOCK_MONOTONIC. */
static inline int64_t ks_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * KS_SECOND + now.tv_nsec;
}

static inline struct timespec ks_timespec(int64_t nanoseconds) {
    return (struct timespec){.tv_sec = nanoseconds / KS_SECOND,
                             .tv_nsec = (long)(nanoseconds % KS_SECOND)};
}

static inline void ks_sleep(int64_t nanoseconds) {
    const struct timespec duration = ks_timespec(nanoseconds);
    nanosleep(&duration, NULL);
}

/* Sleeps while *word is `expected`, at most so long; may return early. The word may be in memory
 * that this process can only read. */
static inline void ks_wait(const atomic_uint *word, uint32_t expected, int64_t nanoseconds) {
    const struct timespec timeout = ks_timespec(nanoseconds);
    syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, NULL, 0);
}

static inline void ks_wake(const atomic_uint *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Keeps this thread from being cancelled until ks_allow_cancel() is called with the result: a libc
 * call that waits would otherwise end the thread with the locks that it holds. */
static inline int ks_forbid_cancel(void) {
    int state = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    return state;
}

static inline void ks_allow_cancel(int state) {
    pthread_setcancelstate(state, NULL);
}

/* Moves a descriptor away from the low numbers that programs close or reuse. Takes `fd`, which may
 * be negative; returns the descriptor to use. */
int ks_move_descriptor(int fd);

/* A descriptor that the program may close, as may its number be used for another file then. */
struct ks_descriptor {
    int number; /* negative: none */
    dev_t device;
    ino_t inode;
};

#define KS_NO_DESCRIPTOR ((struct ks_descriptor){.number = -1})

/* Takes `fd`, which may be negative. */
struct ks_descriptor ks_descriptor_of(int fd);

/* Whether its number still is that of the same file: to be asked before each use. */
bool ks_descriptor_is_ours(const struct ks_descriptor *descriptor);

/* Closes it if it is; there is none then. */
void ks_descriptor_close(struct ks_descriptor *descriptor);

/* One line on standard error, when KUBESHARE_DEBUG is set. */
__attribute__((format(printf, 1, 2))) void ks_debug(const char *format, ...);

#endif

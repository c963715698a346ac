/*
 * A thread passes a gate again and again, as a launch does, while this one closes it as the agent
 * does: once the gate is closed and no mark is seen, nothing may pass.
 *
 *   marks-test kernel|launches|forbidden [ROUNDS]    who has the barrier
 *
 * Where it is forbidden, the kernel has it at first, and a seccomp filter takes it away.
 * Prints how often the thread was seen inside behind a closed gate. Exit code 1 where it passed
 * unseen.
 */
#include "gate/marks.h"
#include "system.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static alignas(64) atomic_uint gate; /* enum ks_gate_state */
static alignas(64) _Atomic uint64_t passed;
static atomic_bool is_over;

/* Not so long that the other thread always finds it here. */
static void work(void) {
    for (volatile int i = 0; i < 20; i++)
        ;
}

#define FAR_BYTES ((size_t)64 << 20)

/* Stores that miss every cache: those behind them, the mark's too, wait in the processor for as
 * long, while what the thread loads does not. */
static void store_far_away(void) {
    static char memory[FAR_BYTES];
    volatile char *far = memory;
    static uint64_t random = 1;
    for (int i = 0; i < 16; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        far[random >> 33 & (FAR_BYTES - 1)] = 1;
    }
}

/* Where both threads have one processor, a round would else take all of a thread's time slice. */
#define TURNS_BETWEEN_YIELDS 64

static void *launch(void *mark_of_thread) {
    struct ks_mark *_Atomic *own = mark_of_thread;
    struct ks_mark *mark = ks_marks_own();
    atomic_store_explicit(&mark->cell, 0, memory_order_relaxed);
    atomic_store(own, mark);
    for (unsigned turn = 1; !atomic_load_explicit(&is_over, memory_order_relaxed); turn++) {
        if (turn % TURNS_BETWEEN_YIELDS == 0)
            sched_yield();
        store_far_away();
        ks_mark_inside(mark, 1);
        if (atomic_load(&gate) == KS_GATE_OPEN) {
            work();
            atomic_fetch_add_explicit(&passed, 1, memory_order_relaxed);
        }
        atomic_store_explicit(&mark->depth, 0, memory_order_release);
    }
    return NULL;
}

/* The library's is silent unless asked, too. */
void ks_debug(const char *format, ...) {
    (void)format;
}

static bool forbid_membarrier(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1 /* EPERM */),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

/* How often the thread was inside when the gate was closed. */
static int close_and_open(int rounds) {
    int inside = 0;
    for (int round = 0; round < rounds; round++) {
        atomic_store(&gate, KS_GATE_OPEN);
        const uint64_t before = atomic_load(&passed);
        while (atomic_load(&passed) == before)
            sched_yield();
        atomic_store(&gate, KS_GATE_CLOSED);
        ks_marks_barrier();
        for (; ks_is_launching(0); inside++)
            sched_yield();
        const uint64_t then = atomic_load(&passed);
        work();
        work();
        if (atomic_load(&passed) != then) {
            fprintf(stderr, "round %d: passed a closed gate without a mark\n", round);
            exit(1);
        }
    }
    return inside;
}

int main(int count, char **arguments) {
    struct ks_mark *_Atomic mark = NULL;
    pthread_t thread;
    const int rounds = count > 2 ? atoi(arguments[2]) : 20000;
    const bool is_forbidden = count > 1 && strcmp(arguments[1], "forbidden") == 0;
    if (is_forbidden || (count > 1 && strcmp(arguments[1], "kernel") == 0)) {
        ks_marks_leave_barrier();
        if (!atomic_load(&ks_marks_have_barrier)) {
            fprintf(stderr, "marks-test: the kernel has no membarrier for this process\n");
            return 3;
        }
    }
    if (pthread_create(&thread, NULL, launch, &mark) != 0)
        return 2;
    while (atomic_load(&mark) == NULL)
        sched_yield();
    int inside = close_and_open(rounds);
    if (is_forbidden) {
        if (!forbid_membarrier())
            return 3;
        inside += close_and_open(rounds);
        if (atomic_load(&ks_marks_have_barrier)) {
            fprintf(stderr, "launches leave the barrier to a call that is forbidden\n");
            return 1;
        }
    }
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    printf("%d rounds, seen inside: %s\n", rounds, inside > 0 ? "yes" : "no");
    return 0;
}

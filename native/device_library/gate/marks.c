/*
 * Marks live in chunks that are never freed, so a thread reads and writes its
 * own without a lock. A thread that ends does not give its mark back: it is
 * taken over when no other is free.
 */
#include "gate/marks.h"

#include "lock.h"
#include "system.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/mman.h>

#define MARKS_PER_CHUNK 64
#define SETTLED_AFTER   KS_MILLISECOND

struct chunk {
    struct chunk *next;
    struct ks_mark marks[MARKS_PER_CHUNK];
};

static struct chunk first_chunk;
static ks_lock lock; /* of the list of chunks */

_Thread_local struct ks_mark *ks_thread_mark;
atomic_bool ks_marks_have_barrier;

static bool is_dead(int thread) {
    return syscall(SYS_tgkill, getpid(), thread, 0) != 0 && errno == ESRCH;
}

/* ---- with the lock held --------------------------------------------------- */

static struct ks_mark *take_free_mark(int thread) {
    for (struct chunk *chunk = &first_chunk; chunk != NULL; chunk = chunk->next) {
        for (unsigned i = 0; i < MARKS_PER_CHUNK; i++) {
            int owner = 0;
            if (atomic_compare_exchange_strong(&chunk->marks[i].thread, &owner, thread))
                return &chunk->marks[i];
        }
    }
    return NULL;
}

static void free_marks_of_dead_threads(void) {
    for (struct chunk *chunk = &first_chunk; chunk != NULL; chunk = chunk->next) {
        for (unsigned i = 0; i < MARKS_PER_CHUNK; i++) {
            struct ks_mark *mark = &chunk->marks[i];
            if (atomic_load(&mark->thread) != 0 && is_dead(atomic_load(&mark->thread))) {
                atomic_store(&mark->depth, 0);
                atomic_store(&mark->thread, 0);
            }
        }
    }
}

static bool add_chunk(void) {
    struct chunk *chunk =
        mmap(NULL, sizeof *chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (chunk == MAP_FAILED)
        return false;
    struct chunk *last = &first_chunk;
    while (last->next != NULL)
        last = last->next;
    last->next = chunk;
    return true;
}

/* The depth is read first: a thread writes it after the cell. */
static bool is_inside(struct ks_mark *mark, unsigned cell) {
    if (atomic_load(&mark->depth) == 0)
        return false;
    const unsigned inside = atomic_load(&mark->cell);
    return inside == cell || inside == KS_CELLS_MAX;
}

static bool any_is_inside(unsigned cell) {
    for (struct chunk *chunk = &first_chunk; chunk != NULL; chunk = chunk->next) {
        for (unsigned i = 0; i < MARKS_PER_CHUNK; i++) {
            if (is_inside(&chunk->marks[i], cell))
                return true;
        }
    }
    return false;
}

/* ---- from outside ----------------------------------------------------------- */

struct ks_mark *ks_marks_own(void) {
    if (ks_thread_mark != NULL)
        return ks_thread_mark;
    const int thread = (int)syscall(SYS_gettid);
    ks_acquire(&lock, KS_LOCK_MARKS);
    ks_thread_mark = take_free_mark(thread);
    if (ks_thread_mark == NULL) {
        free_marks_of_dead_threads();
        ks_thread_mark = take_free_mark(thread);
    }
    if (ks_thread_mark == NULL && add_chunk())
        ks_thread_mark = take_free_mark(thread);
    ks_release(&lock);
    return ks_thread_mark;
}

static bool membarrier(int command) {
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

void ks_marks_leave_barrier(void) {
    if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
        atomic_store(&ks_marks_have_barrier, true);
}

/* A program may forbid the call by a seccomp filter at any time. Launches then have barriers of
 * their own again; the marks that were set without one leave their processors' store buffers
 * meanwhile, which takes far less. */
void ks_marks_barrier(void) {
    if (!atomic_load(&ks_marks_have_barrier) || membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
        return;
    ks_debug("membarrier(2) is forbidden now: each launch has a barrier of its own");
    atomic_store(&ks_marks_have_barrier, false);
    ks_sleep(SETTLED_AFTER);
}

/* A launch is counted while its mark is set. So what is counted and not marked has reached the
 * driver. */
uint64_t ks_launches(unsigned cell) {
    uint64_t launches = 0;
    ks_acquire(&lock, KS_LOCK_MARKS);
    for (struct chunk *chunk = &first_chunk; chunk != NULL; chunk = chunk->next) {
        for (unsigned i = 0; i < MARKS_PER_CHUNK; i++)
            launches += atomic_load_explicit(&chunk->marks[i].launches[cell], memory_order_acquire);
    }
    ks_release(&lock);
    return launches;
}

bool ks_is_launching(unsigned cell) {
    static int64_t checked_for_dead;
    ks_acquire(&lock, KS_LOCK_MARKS);
    bool is_launching = any_is_inside(cell);
    if (is_launching && ks_now() - checked_for_dead > KS_MILLISECOND) {
        free_marks_of_dead_threads(); /* a thread that was cancelled inside a launch */
        checked_for_dead = ks_now();
        is_launching = any_is_inside(cell);
    }
    ks_release(&lock);
    return is_launching;
}

void ks_marks_forget(void) {
    first_chunk = (struct chunk){0};
    lock = (ks_lock){0};
    ks_thread_mark = NULL;
    atomic_store(&ks_marks_have_barrier, false);
}

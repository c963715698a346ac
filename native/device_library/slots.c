/*
 * Every process owns a slot of the shared file and writes only there. Record
 * locks keep the file consistent when a process dies, however it ends, in
 * whatever PID namespace:
 *
 *   byte 0 of the file       held while sums are taken and budgets change hands;
 *   second byte of a slot    held by its owner until it ends; a slot in use of
 *                            which no byte is held belonged to a dead process,
 *                            and its charges no longer count;
 *   first byte of a slot     held likewise, for the file's readers: this lock
 *                            names the process.
 *
 * The first two belong to an open file each (Linux 3.15), and go with its last
 * reference. The first has a descriptor, and is opened again where the program
 * has closed that. The second has none: a mapping keeps its file, so the program
 * cannot drop it by opening and closing the file, nor by closing descriptors. The
 * third is POSIX's, which has a pid and goes with *any* descriptor of the file that
 * the process closes; it is taken again whenever the file is entered.
 */
#include "slots.h"

#include "lock.h"
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static ks_lock lock;         /* record locks do not exclude threads of the same process */
static int cancel_of_holder; /* the cancel state to which its holder returns */
static struct ks_counters *counters;
static char file_path[PATH_MAX];
static struct ks_descriptor file = {.number = -1};
static ks_lock opening;    /* of these files: a fork in between would share them */
static atomic_int forking; /* the thread that holds it for a fork, or 0 */
static atomic_int own_slot = KS_NO_SLOT;

/* glibc 2.17 does not declare them. */
#ifndef F_OFD_GETLK
#define F_OFD_GETLK  36
#define F_OFD_SETLK  37
#define F_OFD_SETLKW 38
#endif

/* Nobody reads it: it keeps the file's locks when the descriptor is closed. A forked child does not
 * get it: its parent's locks must end with the parent. */
static bool pin(int descriptor) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *mapped = mmap(NULL, page, PROT_NONE, MAP_SHARED, descriptor, 0);
    return mapped != MAP_FAILED && madvise(mapped, page, MADV_DONTFORK) == 0;
}

static int open_file(void) {
    struct stat status;
    const int descriptor = ks_move_descriptor(open(file_path, O_RDWR | O_CLOEXEC));
    if (descriptor >= 0 && fstat(descriptor, &status) == 0 &&
        status.st_size >= (off_t)sizeof *counters)
        return descriptor;
    ks_debug("%s cannot be opened, or is too small: no GPU may be used", file_path);
    if (descriptor >= 0)
        close(descriptor);
    return -1;
}

bool ks_slots_open(const char *path) {
    if (strlen(path) >= sizeof file_path)
        return false;
    strcpy(file_path, path);
    const int descriptor = open_file();
    if (descriptor < 0)
        return false;
    void *mapped = mmap(NULL, sizeof *counters, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor); /* forks share this mapping, and none of the locks */
    if (mapped == MAP_FAILED)
        return false;
    counters = mapped;
    return true;
}

static bool open_for_locks(void) {
    ks_acquire(&opening, KS_LOCK_OPENING);
    file = ks_descriptor_of(open_file());
    ks_release(&opening);
    return file.number >= 0;
}

struct ks_counters *ks_slots_file(void) {
    return counters;
}

int ks_slots_own(void) {
    return atomic_load_explicit(&own_slot, memory_order_acquire);
}

/* The byte that names the owner; the next one shows that it lives. */
static off_t name_of(int slot) {
    return (off_t)(offsetof(struct ks_counters, slot) +
                   (size_t)slot * sizeof(struct ks_counters_slot));
}

static off_t life_of(int slot) {
    return name_of(slot) + 1;
}

static bool set_lock(int descriptor, int command, short type, off_t byte) {
    struct flock record = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int result;
    do
        result = fcntl(descriptor, command, &record);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

/* Fails where the program has closed the descriptor; what it locked went with it. */
static bool set_record_lock(int command, short type, off_t byte) {
    return ks_descriptor_is_ours(&file) && set_lock(file.number, command, type, byte);
}

/* By either byte: an older library holds the first one alone. */
static bool is_held_by_another(int slot) {
    struct flock record = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = name_of(slot), .l_len = 2};
    return !ks_descriptor_is_ours(&file) || fcntl(file.number, F_OFD_GETLK, &record) != 0 ||
           record.l_type != F_UNLCK;
}

/* Takes both locks of a slot that nobody holds, or none. */
static bool take_locks(int slot) {
    ks_acquire(&opening, KS_LOCK_OPENING);
    const int of_life = open_file();
    const bool taken =
        of_life >= 0 && set_lock(of_life, F_OFD_SETLK, F_WRLCK, life_of(slot)) && pin(of_life);
    if (of_life >= 0)
        close(of_life);
    ks_release(&opening);
    if (taken)
        set_record_lock(F_SETLK, F_WRLCK, name_of(slot));
    return taken;
}

static atomic_uint *used_of(int slot) {
    return (atomic_uint *)&counters->slot[slot].used;
}

static void clear(int slot) {
    struct ks_counters_slot *cleared = &counters->slot[slot];
    for (unsigned cell = 0; cell < KS_CELLS_MAX; cell++) {
        atomic_store((_Atomic uint64_t *)&counters->budget[slot].cell[cell], 0);
        atomic_store((_Atomic uint64_t *)&cleared->memory_bytes[cell], 0);
        atomic_store((_Atomic uint64_t *)&cleared->launches[cell], 0);
    }
    atomic_store((_Atomic uint64_t *)&cleared->host_bytes, 0);
    atomic_store((_Atomic uint64_t *)&cleared->spilled_bytes, 0);
    atomic_store(used_of(slot), 0);
}

bool ks_slots_enter(void) {
    const int cancel = ks_forbid_cancel();
    ks_acquire(&lock, KS_LOCK_SLOTS);
    cancel_of_holder = cancel;
    const bool is_open = ks_descriptor_is_ours(&file) || (counters != NULL && open_for_locks());
    if (is_open && set_record_lock(F_OFD_SETLKW, F_WRLCK, 0)) {
        if (ks_slots_own() != KS_NO_SLOT)
            set_record_lock(F_SETLK, F_WRLCK, name_of(ks_slots_own()));
        return true;
    }
    ks_release(&lock);
    ks_allow_cancel(cancel);
    return false;
}

void ks_slots_leave(void) {
    const int cancel = cancel_of_holder;
    set_record_lock(F_OFD_SETLK, F_UNLCK, 0);
    ks_release(&lock);
    ks_allow_cancel(cancel);
}

bool ks_slots_take(void) {
    if (ks_slots_own() != KS_NO_SLOT)
        return true;
    for (int slot = 0; slot < (int)KS_PROCESSES_MAX; slot++) {
        if (is_held_by_another(slot) || !take_locks(slot))
            continue;
        clear(slot);
        counters->slot[slot].pid = (uint32_t)getpid();
        atomic_store(used_of(slot), 1);
        atomic_store_explicit(&own_slot, slot, memory_order_release);
        return true;
    }
    ks_debug("%u processes of this session use a GPU already", KS_PROCESSES_MAX);
    return false;
}

/* No slot changes its owner before ks_slots_leave(). */
void ks_slots_clear_dead(void) {
    for (int slot = 0; slot < (int)KS_PROCESSES_MAX; slot++) {
        if (slot != ks_slots_own() && atomic_load(used_of(slot)) != 0 && !is_held_by_another(slot))
            clear(slot);
    }
}

static int own_thread(void) {
    return (int)syscall(SYS_gettid);
}

/* Does not wait for ever: a handler of a signal may fork while its thread opens the file. */
void ks_slots_before_fork(void) {
    const int64_t deadline = ks_now() + KS_SECOND;
    if (atomic_load(&forking) == own_thread())
        return; /* registered twice */
    while (!ks_try_acquire(&opening, KS_LOCK_OPENING)) {
        if (ks_now() > deadline)
            return;
        ks_sleep(KS_MILLISECOND / 10);
    }
    atomic_store(&forking, own_thread());
}

void ks_slots_after_fork(void) {
    int own = own_thread();
    if (atomic_compare_exchange_strong(&forking, &own, 0))
        ks_release(&opening);
}

void ks_slots_forget(void) {
    ks_descriptor_close(&file);
    atomic_store(&own_slot, KS_NO_SLOT);
    lock = (ks_lock){0};
    if (atomic_exchange(&forking, 0) != 0)
        ks_release(&opening);
    opening = (ks_lock){0};
}

/*
 * Every process owns a slot of the shared file and writes only there; what the
 * claim holds is the sum of all slots. Two kinds of POSIX record locks keep it
 * right whoever dies:
 *
 *   byte 0 of the file       held while a sum is taken and charged, so that two
 *                            processes can never pass the limit together;
 *   first byte of a slot     held by its owner for life; a slot whose byte
 *                            nobody holds belonged to a dead process, and what
 *                            it had charged no longer counts.
 *
 * The kernel drops these locks with the process, however it ends, in whatever
 * PID namespace. It also drops them when *any* descriptor of the file is closed
 * in the process: therefore the file is opened exactly once.
 */
#include "account.h"

#include "system.h"

#include "kubeshare_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

typedef _Atomic uint64_t counter;

static ks_lock lock; /* record locks do not hold off threads of the same process */
static struct ks_counters *counters;
static char file_path[PATH_MAX];
static int file = -1;
static int own_slot = -1;

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

bool ks_account_open(const char *path) {
    if (strlen(path) >= sizeof file_path)
        return false;
    strcpy(file_path, path);
    file = open_file();
    if (file < 0)
        return false;
    void *mapped = mmap(NULL, sizeof *counters, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        close(file);
        file = -1;
        return false;
    }
    counters = mapped;
    return true;
}

static counter *memory_of(unsigned slot, unsigned cell) {
    return (counter *)&counters->slot[slot].memory_bytes[cell];
}

static atomic_uint *used_of(unsigned slot) {
    return (atomic_uint *)&counters->slot[slot].used;
}

static off_t byte_of(unsigned slot) {
    return (off_t)(offsetof(struct ks_counters, slot) + slot * sizeof(struct ks_counters_slot));
}

static bool set_record_lock(int command, short type, off_t byte) {
    struct flock record = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int result;
    do
        result = fcntl(file, command, &record);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

static bool is_held_by_another(unsigned slot) {
    struct flock record = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte_of(slot), .l_len = 1};
    return fcntl(file, F_GETLK, &record) != 0 || record.l_type != F_UNLCK;
}

static void clear(unsigned slot) {
    for (unsigned cell = 0; cell < KS_CELLS_MAX; cell++)
        atomic_store(memory_of(slot, cell), 0);
    memset(counters->slot[slot].launches, 0, sizeof counters->slot[slot].launches);
    atomic_store(used_of(slot), 0);
}

/* The caller holds both locks, so no slot changes hands meanwhile. */
static void clear_slots_of_the_dead(void) {
    for (unsigned slot = 0; slot < KS_PROCESSES_MAX; slot++) {
        if ((int)slot != own_slot && atomic_load(used_of(slot)) != 0 && !is_held_by_another(slot))
            clear(slot);
    }
}

static bool take_slot(void) {
    if (own_slot >= 0)
        return true;
    for (unsigned slot = 0; slot < KS_PROCESSES_MAX; slot++) {
        if (!set_record_lock(F_SETLK, F_WRLCK, byte_of(slot)))
            continue;
        clear(slot);
        counters->slot[slot].pid = (uint32_t)getpid();
        atomic_store(used_of(slot), 1);
        own_slot = (int)slot;
        return true;
    }
    ks_debug("%u processes of this claim use a GPU already", KS_PROCESSES_MAX);
    return false;
}

static uint64_t sum(unsigned cell) {
    uint64_t bytes = 0;
    for (unsigned slot = 0; slot < KS_PROCESSES_MAX; slot++)
        bytes += atomic_load(memory_of(slot, cell));
    return bytes;
}

static bool enter(void) {
    ks_acquire(&lock);
    if (counters != NULL && file < 0)
        file = open_file();
    if (file >= 0 && set_record_lock(F_SETLKW, F_WRLCK, 0))
        return true;
    ks_release(&lock);
    return false;
}

static void leave(void) {
    set_record_lock(F_SETLK, F_UNLCK, 0);
    ks_release(&lock);
}

static bool fits(unsigned cell, uint64_t bytes, uint64_t limit) {
    const uint64_t held = sum(cell);
    return held <= limit && bytes <= limit - held;
}

bool ks_account_charge(unsigned cell, uint64_t bytes, uint64_t limit) {
    if (!enter())
        return false;
    bool charged = take_slot();
    if (charged && !fits(cell, bytes, limit)) {
        clear_slots_of_the_dead();
        charged = fits(cell, bytes, limit);
    }
    if (charged)
        atomic_fetch_add(memory_of((unsigned)own_slot, cell), bytes);
    leave();
    return charged;
}

void ks_account_give_back(unsigned cell, uint64_t bytes) {
    if (own_slot >= 0)
        atomic_fetch_sub(memory_of((unsigned)own_slot, cell), bytes);
}

uint64_t ks_account_charged(unsigned cell) {
    if (!enter())
        return UINT64_MAX;
    clear_slots_of_the_dead();
    const uint64_t bytes = sum(cell);
    leave();
    return bytes;
}

void ks_account_show_launches(unsigned cell, uint64_t launches) {
    if (own_slot >= 0)
        atomic_store((counter *)&counters->slot[own_slot].launches[cell], launches);
}

void ks_account_forget(void) {
    if (file >= 0)
        close(file); /* the parent's locks are the parent's: this drops none of them */
    file = -1;
    own_slot = -1;
    lock = (ks_lock){0};
}

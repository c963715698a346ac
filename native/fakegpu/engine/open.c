/* Opening the shared state, and making it where there is none. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine.h"

#ifndef F_OFD_GETLK
#define F_OFD_GETLK  36
#define F_OFD_SETLKW 38
#endif

enum opened { OPENED, STALE, FAILED };

static void fail(char *error, size_t size, const char *what, const char *path) {
    snprintf(error, size, "%s %s: %s", what, path, strerror(errno));
}

static bool choose_path(struct engine *engine, char *path, size_t path_size, char *error,
                        size_t size) {
    char *folder = engine->folder;
    const char *chosen = getenv("FAKEGPU_STATE");
    if (chosen == NULL || *chosen == '\0')
        chosen = engine->profile.state;
    int length = *chosen != '\0' ? snprintf(folder, sizeof engine->folder, "%s", chosen)
                                 : snprintf(folder, sizeof engine->folder, "/dev/shm/fakegpu-%u",
                                            (unsigned)getuid());
    if (length < 0 || (size_t)length >= sizeof engine->folder) {
        snprintf(error, size, "the path of the state folder is too long");
        return false;
    }
    /* Every user's processes share one GPU, as they share a real one. */
    if (mkdir(folder, 0777) == 0) {
        if (chmod(folder, 0777) != 0)
            return fail(error, size, "cannot open to all users", folder), false;
    } else if (errno != EEXIST) {
        return fail(error, size, "cannot make the state folder", folder), false;
    }
    snprintf(path, path_size, "%s/engine", folder);
    return true;
}

static void lock_processes(int fd, short type) {
    struct flock lock = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = LOCK_PROCESSES, .l_len = 1};
    while (record_lock(fd, F_OFD_SETLKW, &lock) != 0 && errno == EINTR)
        ;
}

static bool any_process_lives(int fd) {
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_LIFE(0), .l_len = PROCESSES_MAX};
    return record_lock(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static void fill(struct state *state, const struct profile *profile) {
    state->version = STATE_VERSION;
    state->gpus = profile->gpus;
    state->profile_hash = profile_hash(profile);
    for (unsigned i = 0; i < profile->gpus; i++) {
        struct gpu *gpu = &state->gpu[i];
        profile_uuid_text(profile, i, gpu->uuid);
        memcpy(gpu->model, profile->models[i].name, sizeof gpu->model);
        gpu->memory_bytes = profile->models[i].memory_bytes;
    }
    __atomic_store_n(&state->magic, STATE_MAGIC, __ATOMIC_RELEASE);
}

/* Whether a mapped state is one that this process may use. */
static bool fits(const struct state *state, const struct engine *engine, enum engine_use use) {
    return state->magic == STATE_MAGIC && state->version == STATE_VERSION &&
           engine->size == sizeof(struct state) + state->gpus * sizeof(struct gpu) &&
           (use == ENGINE_LOOK || state->profile_hash == profile_hash(&engine->profile));
}

/* With the lock of the processes held. */
static enum opened map(struct engine *engine, enum engine_use use, const char *path, char *error,
                       size_t size) {
    struct stat here, there;
    size_t wanted = sizeof(struct state) + engine->profile.gpus * sizeof(struct gpu);
    if (fstat(engine->fd, &here) != 0)
        return fail(error, size, "cannot look at", path), FAILED;
    if (stat(path, &there) != 0 || here.st_ino != there.st_ino)
        return STALE;
    bool new = here.st_size == 0;
    if (new && (fchmod(engine->fd, 0666) != 0 || ftruncate(engine->fd, (off_t)wanted) != 0))
        return fail(error, size, "cannot make", path), FAILED;
    engine->size = new ? wanted : (size_t)here.st_size;
    struct state *state =
        mmap(NULL, engine->size, PROT_READ | PROT_WRITE, MAP_SHARED, engine->fd, 0);
    if (state == MAP_FAILED)
        return fail(error, size, "cannot map", path), FAILED;
    /* Full size but no magic: the process that created it was stopped before it was done. */
    if (engine->size == wanted && state->magic == 0)
        fill(state, &engine->profile);
    if (engine->size >= sizeof(struct state) && fits(state, engine, use)) {
        engine->state = state;
        return OPENED;
    }
    munmap(state, engine->size);
    if (use == ENGINE_LOOK || any_process_lives(engine->fd)) {
        snprintf(error, size, "%s belongs to another profile or version, and is in use", path);
        return FAILED;
    }
    if (unlink(path) != 0)
        return fail(error, size, "cannot replace the state of another profile", path), FAILED;
    return STALE;
}

bool engine_open(struct engine *engine, enum engine_use use, const char *library_path, char *error,
                 size_t size) {
    char path[4096];
    enum opened opened = STALE;
    if (!profile_choose(&engine->profile, library_path, error, size) ||
        !choose_path(engine, path, sizeof path, error, size))
        return false;
    for (unsigned i = 0; i < GPUS_MAX; i++)
        pthread_mutex_init(&engine->mutex[i], NULL);
    while (opened == STALE) {
        engine->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (engine->fd < 0)
            return fail(error, size, "cannot open", path), false;
        lock_processes(engine->fd, F_WRLCK);
        opened = map(engine, use, path, error, size);
        lock_processes(engine->fd, F_UNLCK);
        if (opened != OPENED)
            close(engine->fd);
    }
    return opened == OPENED;
}

unsigned engine_present(const struct engine *engine, uint32_t present[GPUS_MAX]) {
    char path[32];
    unsigned count = 0;
    const char *asked = getenv("FAKEGPU_DEVICE_NODES");
    bool nodes = asked != NULL && strcmp(asked, "1") == 0;
    for (uint32_t gpu = 0; gpu < engine->state->gpus; gpu++) {
        snprintf(path, sizeof path, "/dev/nvidia%u", gpu);
        if (!nodes || access(path, F_OK) == 0)
            present[count++] = gpu;
    }
    return count;
}

void engine_forget(struct engine *engine) {
    if (engine->state == NULL)
        return;
    engine->state = NULL;
    engine->process = 0;
    close(engine->fd);
}

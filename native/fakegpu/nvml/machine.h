/*
 * The inside of the fake NVML: what its files share.
 *
 * It looks at the same engine as the fake driver, from its own mapping: both
 * may live in one process, and neither knows of the other. Once opened the
 * state stays open: closing any descriptor of it would drop this process's
 * record locks, the fake driver's too.
 */
#ifndef FAKEGPU_MACHINE_H
#define FAKEGPU_MACHINE_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <pthread.h>
#include <stdbool.h>

#include "../engine/engine.h"

#define API __attribute__((visibility("default"))) nvmlReturn_t

/** Leaves the function with an error that `expression` gives. */
#define TRY(expression)                                                                            \
    do {                                                                                           \
        nvmlReturn_t tried_ = (expression);                                                        \
        if (tried_ != NVML_SUCCESS)                                                                \
            return tried_;                                                                         \
    } while (0)

/** Leaves the function with `error` unless `condition` holds. */
#define REQUIRE(condition, error)                                                                  \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return (error);                                                                        \
    } while (0)

/* A visible GPU, or one of its MIG devices; its address is the handle. */
struct nvmlDevice_st {
    uint32_t gpu; /* in the engine, and its minor number */
    unsigned mig; /* 0: the GPU itself; else which of its MIG devices, from 1 */
};

struct machine {
    pthread_mutex_t lock;
    unsigned references; /* nvmlInit less nvmlShutdown */
    bool forked;         /* the mapping's locks are the parent's */
    struct engine engine;
    struct nvmlDevice_st devices[GPUS_MAX];
    unsigned device_count;
    struct nvmlDevice_st migs[GPUS_MAX][MIGS_MAX]; /* by the place of their GPU */
};

extern struct machine machine;

/** NVML_ERROR_UNINITIALIZED outside nvmlInit and nvmlShutdown. */
nvmlReturn_t machine_ready(void);

/** Checks a handle given by the program, and that its GPU is there. */
nvmlReturn_t check_device(nvmlDevice_t device);

/** The same for a GPU that is lost: only its identity is known. */
nvmlReturn_t check_handle(nvmlDevice_t device);

/** The place of a handle's GPU among the visible ones. */
unsigned place_of(nvmlDevice_t device);

/** How many MIG devices a handle's GPU has. */
unsigned migs_of(nvmlDevice_t device);

/** A MIG device by its UUID. */
nvmlReturn_t find_mig(const char *uuid, nvmlDevice_t *device);

/** Writes a text where it fits. */
nvmlReturn_t answer_text(char *text, unsigned length, const char *value);

/** The errors of a GPU that an event set may not have seen. */
uint64_t xids_of(nvmlDevice_t device);

/** Fills what is known of a GPU on the bus; all but busId when `legacy`. */
void fill_pci(nvmlPciInfo_t *pci, uint32_t gpu, bool legacy);

#endif

/* How long bytes take from one place to another. */
#ifndef FAKEGPU_TRANSFER_H
#define FAKEGPU_TRANSFER_H

#include "operation.h"

/** The GPU that an address is of; NULL: the host's memory. */
const struct device *device_of(CUdeviceptr address);

/**
 * Sets the time of an operation that moves bytes: within and between GPUs on
 * the engine, from and to the host beside it, as a copy engine would. Copies
 * within the host take none.
 */
void set_copy_time(struct operation *operation, const struct device *to, const struct device *from,
                   uint64_t bytes);
void set_fill_time(struct operation *operation, uint64_t bytes);

/** Takes the copy engine of a GPU for a transfer; returns when it will be over. */
uint64_t begin_transfer(const struct operation *operation, uint64_t now_ns);

#endif

/*
 * What processes give each other by handles that are only bytes: a handle
 * names a file in the state folder, by the process that made it and a number
 * that it uses once. Files of dead processes are swept away.
 */
#ifndef FAKEGPU_IPC_H
#define FAKEGPU_IPC_H

#include "driver.h"

struct ipc_handle {
    uint64_t magic;
    uint64_t process, number;
    uint64_t bytes;
    uint32_t gpu;
    uint32_t reserved;
};

/** Makes the handle's file, `bytes` long, for all users; its descriptor, or -1. */
int ipc_make(struct ipc_handle *handle, uint32_t gpu, uint64_t number, uint64_t bytes);

/** Opens the file of a handle that came from elsewhere; -1 where it is gone. */
int ipc_open(const struct ipc_handle *handle);

/** Whether some bytes are a handle. */
bool ipc_is_handle(const struct ipc_handle *handle);

/** The GPU of a handle among those that this process sees, or NULL. */
struct device *ipc_device(const struct ipc_handle *handle);

/** Removes a file of this process. */
void ipc_remove(uint64_t number);

/** Removes what dead processes left. */
void ipc_sweep(void);

#endif

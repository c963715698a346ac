/*
 * Whose memory is charged to which GPU. All that this process takes of a GPU,
 * by whatever call, passes here.
 */
#ifndef FAKEGPU_ACCOUNT_H
#define FAKEGPU_ACCOUNT_H

#include "driver.h"

#define UNIT_SMALL UINT64_C(512)
#define UNIT_PAGE  (UINT64_C(2) << 20)

uint64_t round_up(uint64_t value, uint64_t unit);

/** Makes this process a client of a GPU, with driver.lock held; false when too many others are. */
bool device_attach(struct device *device);

/** Takes memory of a GPU that this process is a client of; false when the GPU has no room. */
bool device_charge(struct device *device, uint64_t bytes);
void device_uncharge(struct device *device, uint64_t bytes);

/** Sleeps until all that this process has queued on a GPU is done. */
void device_wait_all(struct device *device);

/** The GPU that a location names, or NULL. */
struct device *device_at(const CUmemLocation *location);

/** Whether a location is the host's memory, of whichever NUMA node. */
bool is_host(const CUmemLocation *location);

#endif

/*
 * The hardware queues of a process: what its streams are to them.
 *
 * A front is compared and kept inside engine_enter/leave of its device.
 */
#ifndef FAKEGPU_QUEUE_H
#define FAKEGPU_QUEUE_H

#include "driver.h"

/** Decides how many queues this process has, once its profile is read. */
void queues_choose(void);

/** The queue of a device's next stream. */
uint32_t queue_next(struct device *device);

/** Adds a kernel to a front, or a front to another. */
void front_add(struct front *front, uint32_t queue, uint64_t number);
void front_add_all(struct front *front, const struct front *other);

/** Drops what has ended from a front; the first kernel of the rest, or 0. */
uint64_t front_first(struct front *front, uint32_t gpu, uint32_t client);

/** The last kernel of a front, over its queues. */
uint64_t front_greatest(const struct front *front);

/**
 * Puts a marker behind all that a stream has to wait for; returns it. Not
 * inside engine_enter/leave: it waits while the queue is full.
 */
uint64_t stream_mark(struct CUstream_st *stream);

#endif

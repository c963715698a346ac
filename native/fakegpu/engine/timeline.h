/*
 * The arithmetic of one GPU's time.
 *
 * A GPU runs one process at a time. Processes that have work take turns of
 * SLICE_NS. Within a process the kernels of one queue run in the order of
 * submission, those of different queues side by side, each for exactly its own
 * duration of the process's turns. No process has to be awake for that: a process that reads the
 * state, replays what has happened since the last look. The same step, on a copy, predicts when a
 * kernel will end.
 *
 * The caller holds the GPU's lock.
 */
#ifndef FAKEGPU_TIMELINE_H
#define FAKEGPU_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "state.h"

/** Completes a step that its author did not live to apply. */
void timeline_repair(struct state *state, struct gpu *gpu);

/** Ends the kernels of a client that are over by now, and begins those that may. */
void timeline_settle(struct gpu *gpu, uint32_t client);

/** Replays the timeline up to now_ns (CLOCK_MONOTONIC). */
void timeline_advance(struct state *state, struct gpu *gpu, uint64_t now_ns);

/**
 * When kernel `number` of `client` will end if nothing more is submitted.
 * A lower bound where that is very far away.
 */
uint64_t timeline_predict(const struct gpu *gpu, uint32_t client, uint64_t number);

/** Whether kernel `number` of a client has ended; takes no lock. */
bool timeline_ended(const struct client *client, uint64_t number);

/** Puts a kernel into a queue; the caller knows that there is room. Returns its number. */
uint64_t timeline_submit(struct client *client, uint32_t queue, uint64_t duration_ns,
                         uint64_t after);

/** Whether a client other than this one has work. */
bool timeline_contended(const struct gpu *gpu, uint32_t client);

/** The next client in use at or after `from`, or CLIENTS_MAX. */
uint32_t next_client(const struct gpu *gpu, uint32_t from);

#endif

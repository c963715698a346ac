/*
 * The arithmetic of one GPU's time.
 *
 * A GPU runs one process at a time. Processes that have work take turns of
 * SLICE_NS; within a process kernels run in the order of submission, each for
 * exactly its own duration. No process has to be awake for that: a process that reads the state,
 * replays what has happened since the last look. The same step, on a copy,
 * predicts when a kernel will end.
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

/** Replays the timeline up to now_ns (CLOCK_MONOTONIC). */
void timeline_advance(struct state *state, struct gpu *gpu, uint64_t now_ns);

/**
 * When kernel `number` of `client` will end if nothing more is submitted.
 * A lower bound where that is very far away.
 */
uint64_t timeline_predict(const struct gpu *gpu, uint32_t client, uint64_t number);

/** Whether a client other than this one has work. */
bool timeline_contended(const struct gpu *gpu, uint32_t client);

/** The next client in use at or after `from`, or CLIENTS_MAX. */
uint32_t next_client(const struct gpu *gpu, uint32_t from);

#endif

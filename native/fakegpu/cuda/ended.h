/*
 * What ends with its context: streams and events. Their handles are kept for ever, as those of
 * contexts are: what the program still asks of one is an error.
 */
#ifndef FAKEGPU_ENDED_H
#define FAKEGPU_ENDED_H

#include "driver.h"

struct ended {
    struct CUstream_st *streams;
    struct CUevent_st *events;
};

/** Takes a context's streams and events off it, marked as ended; driver.lock held. */
void ended_take(struct ended *ended, struct CUctx_st *context);

/** Gives back what they held, and keeps their handles; no lock held. */
void ended_keep(struct ended *ended);

#endif

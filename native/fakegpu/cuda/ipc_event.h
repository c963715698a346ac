/*
 * Events that processes share: what the last recording by any process waits for
 * stands in a file that all of them have mapped. The lock of their GPU guards
 * it.
 */
#ifndef FAKEGPU_IPC_EVENT_H
#define FAKEGPU_IPC_EVENT_H

#include "driver.h"

struct ipc_event {
    uint64_t process;   /* that recorded it; 0: none has */
    struct front front; /* its kernels that the event waits for */
    uint32_t client;
    uint32_t deferred; /* its recording cannot go to the engine yet */
};

/* ---- inside engine_enter/leave of the device ---- */

/** Tells the others that this process recorded an event, and after what. */
void ipc_event_recorded(const struct CUevent_st *event);

/** Tells them that it will have. */
void ipc_event_deferred(const struct CUevent_st *event);

/** Whether it holds nothing up. */
bool ipc_event_is_over(const struct CUevent_st *event);

/* ---- outside ---- */

/** Sleeps until it holds nothing up. */
void ipc_event_wait(const struct CUevent_st *event);

/** What an event that ends had of it. */
void ipc_event_end(struct CUevent_st *event);

#endif

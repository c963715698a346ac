/*
 * The agent: the thread of a process that talks to the token daemon.
 */
#ifndef KS_AGENT_H
#define KS_AGENT_H

#include <stdbool.h>
#include <stdint.h>

/* Starts the thread if it does not run. A context or a launch calls this, nothing earlier does. */
bool ks_agent_start(void);

/* Sends WANT, once an epoch: a launch waits at a cell's closed gate. Any thread may call it. */
void ks_agent_want(unsigned cell, uint32_t epoch);

/* In a forked child: there is neither thread nor connection. */
void ks_agent_forget(void);

#endif

/*
 * The agent: one thread a process that speaks with the token daemon.
 */
#ifndef KS_AGENT_H
#define KS_AGENT_H

#include <stdbool.h>
#include <stdint.h>

/* Starts the thread if it does not run. Called when a context or a launch needs it, never earlier.
 */
bool ks_agent_start(void);

/* Tells the daemon that a launch waits at a cell's closed gate; once an epoch. Any thread. */
void ks_agent_want(unsigned cell, uint32_t epoch);

/* In a forked child: there is no thread and no connection. */
void ks_agent_forget(void);

#endif

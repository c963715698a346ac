/*
 * Starts the library in a process, and follows its forks and its end.
 */
#ifndef KS_PROCESS_H
#define KS_PROCESS_H

#include <stdbool.h>

/* Connects the parts of the library, opens the session, and from then on has a forked child start
 * clean and the agent rest when the process exits. False: there is no session that may be used. May
 * be called again and by several threads. */
bool ks_process_start(void);

#endif

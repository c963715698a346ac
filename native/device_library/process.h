/*
 * The life of the process around the library: it forks, and it ends.
 */
#ifndef KS_PROCESS_H
#define KS_PROCESS_H

/* From now on a forked child starts clean, and the agent rests when the process exits. */
void ks_process_watch(void);

#endif

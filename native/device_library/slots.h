/*
 * The file of counters that the processes of a session share, and the slot of this process.
 */
#ifndef KS_SLOTS_H
#define KS_SLOTS_H

#include "kubeshare_wire.h"

#include <stdbool.h>

enum { KS_NO_SLOT = -1 };

/* Opens and maps the file. */
bool ks_slots_open(const char *path);

/* The mapped file; NULL before it is open. */
struct ks_counters *ks_slots_file(void);

/* The slot of this process, or KS_NO_SLOT. */
int ks_slots_own(void);

/* Until ks_slots_leave() no other thread of any process of the session returns from this function.
 * False: the file cannot be locked. */
bool ks_slots_enter(void);
void ks_slots_leave(void);

/* In between: takes a slot if this process has none. False: all are held. */
bool ks_slots_take(void);

/* In between: clears the slots whose processes have died. */
void ks_slots_clear_dead(void);

/* Before a fork, and after it in the parent: in between no thread opens the file of the locks. */
void ks_slots_before_fork(void);
void ks_slots_after_fork(void);

/* In a forked child: it holds no slot. */
void ks_slots_forget(void);

#endif

/*
 * The file of counters that the processes of a session share, and this process's slot in it.
 */
#ifndef KS_SLOTS_H
#define KS_SLOTS_H

#include "kubeshare_wire.h"

#include <stdbool.h>

enum { KS_NO_SLOT = -1 };

/* Opens and maps the file. */
bool ks_slots_open(const char *path);

/* The file as it is mapped; NULL before it was opened. */
struct ks_counters *ks_slots_file(void);

/* The slot of this process, or KS_NO_SLOT. */
int ks_slots_own(void);

/* From here to ks_slots_leave() no other thread of any process of the session is between the two.
 * False: the file cannot be locked. */
bool ks_slots_enter(void);
void ks_slots_leave(void);

/* Inside: takes a slot if this process has none. False: all are held. */
bool ks_slots_take(void);

/* Inside: clears the slots whose processes have died. */
void ks_slots_clear_dead(void);

/* In a forked child: it holds no slot. */
void ks_slots_forget(void);

#endif

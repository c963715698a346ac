/*
 * How much work may be queued on the GPU while others wait for it.
 *
 * A launch takes microseconds, a kernel may take milliseconds: a program that
 * runs ahead has a second of work in the GPU's queue, and cannot withdraw it
 * when its turn ends. So while a GPU is contended (or a limit applies to the
 * session) each launch takes a credit, and new credits follow the GPU's
 * progress: about 20 ms stay queued, enough that the GPU never idles. A session
 * that has had a GPU to itself for a second is no longer metered.
 *
 * The launching threads do all of this themselves: they run already, while
 * another thread would first have to be woken on a busy machine.
 */
#ifndef KS_METER_H
#define KS_METER_H

#include <stdbool.h>

/* Turns metering on or off. It turns itself off when the session has the GPU to itself. */
void ks_meter_set(unsigned cell, bool on);

/* Whether launches on a cell take credits. */
bool ks_meter_is_on(unsigned cell);

/* Takes a credit; false if there is none. */
bool ks_meter_take(unsigned cell);

/* Waits until there may be credits. */
void ks_meter_wait(unsigned cell);

/* Whether a thread waits for credits. */
bool ks_meter_is_waited_for(unsigned cell);

/* In a forked child: off. */
void ks_meter_forget(void);

#endif

/*
 * How much work may be queued on the GPU while others wait for it.
 *
 * A launch takes microseconds, a kernel may take milliseconds: a program that
 * runs ahead has a second of work in the GPU's queue, and when its turn ends
 * nobody can take that back. So while a GPU is contended (or a limit holds the
 * claim) launches take a credit each, and credits come as the GPU works off
 * what was launched: about 20 ms stay queued, enough that it never idles. A
 * claim that has had a GPU to itself for a second is no longer metered.
 *
 * The launching threads do all of this themselves: they run already, while
 * another thread would first have to be woken on a machine that may be busy.
 */
#ifndef KS_METER_H
#define KS_METER_H

#include <stdbool.h>

/* Turns it on or off. It turns itself off where the claim is alone. */
void ks_meter_set(unsigned cell, bool on);

/* Whether launches on a cell take credits. */
bool ks_meter_is_on(unsigned cell);

/* Takes a credit; false when there is none. */
bool ks_meter_take(unsigned cell);

/* Waits until there may be credits. */
void ks_meter_wait(unsigned cell);

/* Whether a thread does. */
bool ks_meter_is_waited_for(unsigned cell);

/* In a forked child: off. */
void ks_meter_forget(void);

#endif

/* Functions of the program, called by a thread of the driver. */
#ifndef FAKEGPU_HOST_H
#define FAKEGPU_HOST_H

#include "operation.h"

/** Starts a thread that gets no signal; false when there can be none. */
bool driver_thread(void *(*run)(void *));

/** Whether this thread runs a function of the program: such a one may not use the driver. */
bool in_host_function(void);

/**
 * Calls a host function or callback after those handed over before it, then
 * `done(argument)`. The operation has to live until then.
 */
void host_call(const struct operation *operation, void (*done)(void *), void *argument);

#endif

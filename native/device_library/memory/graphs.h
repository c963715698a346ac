/*
 * The memory that graphs allocate while they run.
 */
#ifndef KS_MEMORY_GRAPHS_H
#define KS_MEMORY_GRAPHS_H

#include "driver.h"

#include <stdbool.h>

/* Charges the driver's figure for a cell's graphs. With `trim` the driver first returns what it
 * does not use. */
void ks_graphs_visit(unsigned cell, bool trim);

/* In a forked child: there are none. */
void ks_graphs_forget(void);

#endif

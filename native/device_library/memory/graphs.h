/*
 * The memory that graphs allocate while they run.
 */
#ifndef KS_MEMORY_GRAPHS_H
#define KS_MEMORY_GRAPHS_H

#include "driver.h"

#include <stdbool.h>

/* Charges what the driver says of a cell's graphs; where asked for, after it has returned what it
 * does not use. */
void ks_graphs_visit(unsigned cell, bool trim);

/* In a forked child: none. */
void ks_graphs_forget(void);

#endif

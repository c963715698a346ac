/*
 * The library's function for each row of the table of hooks.
 */
#ifndef KS_HOOK_TABLE_H
#define KS_HOOK_TABLE_H

#include "lookup/real.h"

/* NULL for a row that is not hooked itself, but another ABI of its name is. */
extern void *const ks_hook_functions[KS_HOOKS] __attribute__((visibility("hidden")));

#endif

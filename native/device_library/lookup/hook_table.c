/*
 * Only a table: it names functions of every part of the library, and calls none of them.
 * checks/circles.py ignores the references of this file for that reason.
 */
#include "lookup/hook_table.h"

#include <stddef.h>

void *const ks_hook_functions[KS_HOOKS] = {
#define HOOKED(symbol)     (void *)symbol,
#define NOT_HOOKED(symbol) NULL,
#include "hook_functions.def"
#undef HOOKED
#undef NOT_HOOKED
};

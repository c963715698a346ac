/*
 * The table of hooked functions: what each real one is, and which of ours stands in front of it.
 */
#ifndef KS_HOOKS_H
#define KS_HOOKS_H

#include "driver.h"

#include <stdbool.h>

#define KS_EXPORT __attribute__((visibility("default")))

/* Made of driver/names.list: every hook with its parameters, and enum ks_hook_index. */
#include "hook_declarations.h"

/* The real function behind hook `index`; never NULL: where the driver has no
 * such function, one that answers "not found". */
void *ks_real(enum ks_hook_index index);

/* The real function that the hook `name` stands in front of, with its type. */
#define KS_REAL(name) ((__typeof__(&(name)))ks_real(KS_HOOK_##name))

/* Our hook, when `address` is the real function exported as `name`; else `address`. */
void *ks_swap_exported(const char *name, void *address);

/* Our hook, when `address` is what the driver answers for `base` at `version`; else `address`. */
void *ks_swap_versioned(const char *base, int version, uint64_t flags, void *address);

/* Our hook of this exported name, or NULL. */
void *ks_hook_of(const char *name);

/* Whether `address` is our hook of this exported name. */
bool ks_is_ours(const char *name, const void *address);

/* Whether a function is hooked under this exported name. */
int ks_is_hooked(const char *name);

#endif

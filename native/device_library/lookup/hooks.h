/*
 * Exchanges the driver's functions for the library's hooks.
 */
#ifndef KS_HOOKS_H
#define KS_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

/* Our hook if `address` is the real function exported as `name`; otherwise `address`. */
void *ks_swap_exported(const char *name, void *address);

/* Our hook if `address` is what the driver returns for `base` at `version`; otherwise `address`. */
void *ks_swap_versioned(const char *base, int version, uint64_t flags, void *address);

/* Our hook of this exported name, or NULL. */
void *ks_hook_of(const char *name);

/* Whether `address` is our hook of this exported name. */
bool ks_is_ours(const char *name, const void *address);

/* Whether a function is hooked under this exported name. */
bool ks_is_hooked(const char *name);

#endif

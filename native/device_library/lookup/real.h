/*
 * The driver's and NVML's functions behind the library's hooks.
 */
#ifndef KS_REAL_H
#define KS_REAL_H

#include "driver.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define KS_EXPORT __attribute__((visibility("default")))

/* Generated from driver_api/names.list: each hook with its parameters, and enum ks_hook_index. */
#include "hook_declarations.h"

/* Those that were found, by their hook's index. */
extern void *_Atomic ks_real_functions[KS_HOOKS];

/* Finds the real function of ks_real(). */
void *ks_find_real(enum ks_hook_index index, const void *hook);

/* The real function behind hook `index`, whose own function is `hook`. Never NULL: where the driver
 * has no such function, the result is a function that returns "not found". */
static inline void *ks_real(enum ks_hook_index index, const void *hook) {
    void *real = atomic_load_explicit(&ks_real_functions[index], memory_order_relaxed);
    return __builtin_expect(real != NULL, 1) ? real : ks_find_real(index, hook);
}

/* The real function that the hook `name` stands in front of, with its type. */
#define KS_REAL(name) ((__typeof__(&(name)))ks_real(KS_HOOK_##name, (const void *)(name)))

/* Whether `address` is the real function behind hook `index`; remembers it if so. */
bool ks_real_is(enum ks_hook_index index, void *address);

/* Remembers `address` as the real function behind hook `index`, unless the driver exports one. */
void ks_real_remember(enum ks_hook_index index, void *address);

#endif

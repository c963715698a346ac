/*
 * The real dynamic loader behind the dlsym and dlvsym that this library exports.
 */
#ifndef KS_LOADER_H
#define KS_LOADER_H

#include <stdbool.h>

/* The dlsym and dlvsym that come next after this library. */
void *ks_real_dlsym(void);
void *ks_real_dlvsym(void);

/* The first definition of a libc function in load order that is not this library's; NULL if no
 * loaded library has it. Does not use dlsym. */
void *ks_libc_symbol(const char *name);

/* The next definition of `name` in load order after the object that contains `caller`; NULL if that
 * is this library's, or there is none. */
void *ks_next_symbol(const char *name, const void *caller);

/* Whether an address belongs to a driver ("libcuda.so.1") or to an NVML ("libnvidia-ml.so.1") by
 * what its object exports: the first one, or another that the program has loaded. Objects in
 * another namespace do not count. */
bool ks_is_in(const char *soname, const void *address);

/* `name` in the object that contains `caller`, and in what that depends on: where RTLD_DEFAULT
 * searches for this caller after what is loaded for all. NULL: not there. */
void *ks_symbol_for(const void *caller, const char *name);

/* The address of `name` in the driver (libcuda.so.1) or in NVML (libnvidia-ml.so.1). `load` loads
 * the library if needed; otherwise the result is then NULL. Leaves no dlerror behind. */
void *ks_library_symbol(const char *soname, const char *name, bool load);

#endif

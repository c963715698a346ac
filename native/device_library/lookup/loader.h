/*
 * The real dynamic loader behind the dlsym and dlvsym that this library exports.
 */
#ifndef KS_LOADER_H
#define KS_LOADER_H

#include <stdbool.h>

/* The dlsym and dlvsym that come next after this library. */
void *ks_real_dlsym(void);
void *ks_real_dlvsym(void);

/* The first definition of a libc function in the order of loading that is not
 * our own; NULL where no loaded library has it. Needs no dlsym. */
void *ks_libc_symbol(const char *name);

/* The definition of `name` that follows the object which `caller` is in, in the order of loading;
 * NULL where that is our own, or there is none. */
void *ks_next_symbol(const char *name, const void *caller);

/* The address of `name` in the driver (libcuda.so.1) or in NVML (libnvidia-ml.so.1). With `load` it
 * is loaded if it is not yet; without, NULL answers. Leaves no dlerror behind. */
void *ks_library_symbol(const char *soname, const char *name, bool load);

#endif

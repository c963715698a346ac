/* The table of the driver API's names. */
#ifndef FAKEGPU_NAMES_H
#define FAKEGPU_NAMES_H

#include <stdbool.h>

struct driver_name {
    const char *base;
    int version; /* 1000 * major + 10 * minor */
    bool thread; /* a _ptsz or _ptds twin */
    int (*symbol)(void);
};

/** The newest ABI of a name up to a version, or NULL; `known` is set when the name exists at all.
 */
const struct driver_name *newest_name(const char *base, int version, bool thread, bool *known);

/** Calls `visit` for the function behind each name that came after a version. */
void for_each_newer_name(int version, void (*visit)(void *function));

/** The version of CUDA of the profile's driver, 1000 * major + 10 * minor. */
extern int cuda_version;

#endif

/*
 * A library of the kind that meets ours in real programs: it has functions of its own under the
 * driver's names, and it asks for the next definition of a name that it has itself. Built twice,
 * with MARKER 1 and 2, to be preloaded one after the other.
 */
#include <dlfcn.h>
#include <stddef.h>

#ifndef MARKER
#define MARKER 1
#endif

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuMemAlloc_v2(void *pointer, size_t bytes);
EXPORT int marker(void);
EXPORT int next_marker(void);

int cuMemAlloc_v2(void *pointer, size_t bytes) {
    (void)pointer;
    (void)bytes;
    return 4242;
}

int marker(void) {
    return MARKER;
}

int next_marker(void) {
    int (*next)(void) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "marker");
    return next != NULL ? next() : 0;
}

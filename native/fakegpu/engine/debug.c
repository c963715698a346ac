#include "debug.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int not_modelled(const char *what, int *said, int result) {
    const char *asked = getenv("FAKEGPU_DEBUG");
    if (asked != NULL && strcmp(asked, "1") == 0 &&
        __atomic_exchange_n(said, 1, __ATOMIC_RELAXED) == 0)
        fprintf(stderr, "fakegpu: %s is not modelled\n", what);
    return result;
}

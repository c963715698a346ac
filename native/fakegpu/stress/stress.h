/* What the parts of the stress share. */
#ifndef FAKEGPU_STRESS_H
#define FAKEGPU_STRESS_H

#include <cuda.h>

void require(int holds, const char *what, const char *file, int line);

#define REQUIRE(condition) require(condition, #condition, __FILE__, __LINE__)
#define GOOD(call)         require((int)(call) == 0, #call, __FILE__, __LINE__)

/** Every way to memory once, with a mark that only this thread writes. */
void use_all_memory(CUstream stream, unsigned char mark);

#endif

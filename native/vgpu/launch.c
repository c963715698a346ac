/*
 * Everything that gives the GPU work passes the gate first: one body for all rows of the table.
 */
#include "gate.h"
#include "hooks.h"

#define GATED(name, parameters, arguments)                                                         \
    int name parameters {                                                                          \
        CUresult result = ks_enter();                                                              \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = KS_REAL(name) arguments;                                                          \
        ks_leave();                                                                                \
        return result;                                                                             \
    }
#include "gated.def"

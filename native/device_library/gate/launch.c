/*
 * All that gives the GPU work passes the gate first: one body for all rows of the table.
 */
#include "gate/gate.h"
#include "lookup/real.h"

/* The stream that a launch configuration names. */
#define KS_TARGET(configuration)                                                                   \
    ((configuration) != NULL ? ((const struct ks_launch_configuration *)(configuration))->stream   \
                             : NULL)

#define GATED(name, parameters, arguments, target)                                                 \
    int name parameters {                                                                          \
        CUresult result = ks_enter(target);                                                        \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = KS_REAL(name) arguments;                                                          \
        ks_leave();                                                                                \
        return result;                                                                             \
    }
#include "gated.def"

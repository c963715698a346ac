#include "lookup/real.h"
#include "process.h"

/* Without a session there is no GPU. The result is an error that every program can handle. */
int cuInit(unsigned int flags) {
    if (!ks_process_start())
        return CUDA_ERROR_NOT_PERMITTED;
    return KS_REAL(cuInit)(flags);
}

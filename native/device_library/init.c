#include "lookup/real.h"
#include "session.h"

/* No claim, no GPU: the answer is an error that every program knows how to take. */
int cuInit(unsigned int flags) {
    if (!ks_session_open())
        return CUDA_ERROR_NOT_PERMITTED;
    return KS_REAL(cuInit)(flags);
}

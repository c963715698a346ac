/*
 * Rounds bytes up to whole units.
 */
#ifndef KS_ROUNDING_H
#define KS_ROUNDING_H

#include <stdint.h>

/* `bytes` rounded up to whole units; UINT64_MAX on overflow. */
static inline uint64_t ks_round_up(uint64_t bytes, uint64_t unit) {
    uint64_t padded;
    return __builtin_add_overflow(bytes, unit - 1, &padded) ? UINT64_MAX : padded / unit * unit;
}

#endif

/*
 * Memory that the driver keeps in reserve and gives out in pieces: pools, and
 * the memory of graphs. The session is charged for the whole reserve, by the
 * driver's own figure.
 */
#ifndef KS_MEMORY_RESERVE_H
#define KS_MEMORY_RESERVE_H

#include "driver.h"
#include "lock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define KS_CHUNK_BYTES (UINT64_C(32) << 20) /* what the driver takes at once for a pool */

struct ks_reserve {
    ks_lock lock;
    unsigned cell;
    uint64_t charged;   /* bytes; while calls are under way, with what they may need */
    uint64_t promised;  /* bytes of its room to calls that are under way */
    unsigned under_way; /* calls of the driver that may enlarge the reserve */
    atomic_uint pieces; /* given out, or asked for */
    atomic_uint frees;  /* of them, or begun, since there last were none */
    bool (*ask)(const struct ks_reserve *reserve, uint64_t *bytes);      /* how large it is */
    bool (*ask_used)(const struct ks_reserve *reserve, uint64_t *bytes); /* how much is given out */
};

/* Before a call that may enlarge the reserve by as many bytes at most. */
CUresult ks_reserve_begin(struct ks_reserve *reserve, uint64_t bytes);

/* Before a call that surely finds as many bytes in the reserve as it is; CUDA_ERROR_OUT_OF_MEMORY
 * where that is not sure. */
CUresult ks_reserve_begin_within(struct ks_reserve *reserve, uint64_t bytes);

/* After one of the two, with what was promised by the second: charges what the driver says. False:
 * the session has more than its limit now. */
bool ks_reserve_end(struct ks_reserve *reserve, uint64_t promised);

/* Before a piece is asked for; before one is freed; and after it was freed, or not given out. */
void ks_reserve_gives(struct ks_reserve *reserve);
void ks_reserve_frees(struct ks_reserve *reserve);
void ks_reserve_has_less(struct ks_reserve *reserve);

/* After a call that may have made it smaller. */
void ks_reserve_look(struct ks_reserve *reserve);

/* The same, with its lock held. */
void ks_reserve_settle(struct ks_reserve *reserve);

/* Looks at all reserves of this process on a cell. */
void ks_reserves_look(unsigned cell);

/* Has the driver return what it does not use of them. */
void ks_reserves_return(unsigned cell);

#endif

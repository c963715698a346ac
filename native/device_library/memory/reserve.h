/*
 * Memory that the driver reserves and hands out in pieces: pools, and the memory
 * of graphs. The session is charged for the whole reserve, by the driver's own
 * figure.
 */
#ifndef KS_MEMORY_RESERVE_H
#define KS_MEMORY_RESERVE_H

#include "driver.h"
#include "lock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define KS_CHUNK_BYTES (UINT64_C(32) << 20) /* the driver takes this much for a pool at a time */

struct ks_reserve {
    ks_lock lock;
    unsigned cell;
    uint64_t charged;   /* bytes, with what calls under way may need */
    uint64_t promised;  /* bytes of its room, to calls under way */
    unsigned under_way; /* calls of the driver that may enlarge the reserve */
    atomic_uint pieces; /* handed out, or asked for */
    atomic_uint frees;  /* of pieces, or begun, since there last were no pieces */
    bool (*ask)(const struct ks_reserve *reserve, uint64_t *bytes);      /* its size */
    bool (*ask_used)(const struct ks_reserve *reserve, uint64_t *bytes); /* bytes handed out */
};

/* Before a call that may enlarge the reserve by at most so many bytes. */
CUresult ks_reserve_begin(struct ks_reserve *reserve, uint64_t bytes);

/* Before a call that must find so many bytes inside the reserve; CUDA_ERROR_OUT_OF_MEMORY if that
 * is not certain. */
CUresult ks_reserve_begin_within(struct ks_reserve *reserve, uint64_t bytes);

/* After one of the two, with the bytes that the second promised: charges the driver's figure.
 * False: the session now exceeds its limit. */
bool ks_reserve_end(struct ks_reserve *reserve, uint64_t promised);

/* Before a piece is asked for; before one is freed; after it was freed, or not handed out. */
void ks_reserve_gives(struct ks_reserve *reserve);
void ks_reserve_frees(struct ks_reserve *reserve);
void ks_reserve_has_less(struct ks_reserve *reserve);

/* After a call that may have made it smaller. */
void ks_reserve_look(struct ks_reserve *reserve);

/* The same, with its lock held. */
void ks_reserve_settle(struct ks_reserve *reserve);

/* Charges the driver's figure for all reserves of this process on a cell. */
void ks_reserves_look(unsigned cell);

/* The same, after the driver has returned what it does not use of them. */
void ks_reserves_return(unsigned cell);

#endif

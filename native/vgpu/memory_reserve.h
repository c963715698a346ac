/*
 * Memory that the driver keeps in reserve and gives out in pieces: pools, and
 * the memory of graphs. The claim is charged for the whole reserve, by the
 * driver's own figure.
 */
#ifndef KS_MEMORY_RESERVE_H
#define KS_MEMORY_RESERVE_H

#include "driver.h"
#include "system.h"

#include <stdbool.h>
#include <stdint.h>

struct ks_reserve {
    ks_lock lock;
    unsigned cell;
    uint64_t charged;   /* bytes; while calls are under way, with what they may need */
    unsigned under_way; /* calls of the driver that may enlarge the reserve */
    bool (*ask)(const struct ks_reserve *reserve, uint64_t *bytes); /* how large it is */
};

/* Before a call that may enlarge the reserve by as many bytes at most. */
CUresult ks_reserve_begin(struct ks_reserve *reserve, uint64_t bytes);

/* The same, where the reserve is known to have room for what is asked for. */
void ks_reserve_begin_within(struct ks_reserve *reserve);

/* After that call: charges what the driver says. False: the claim has more than its limit now. */
bool ks_reserve_end(struct ks_reserve *reserve);

/* After a call that may have made it smaller. */
void ks_reserve_look(struct ks_reserve *reserve);

/* Charges 0 from now on, and gives what was charged so far: to be given back, or charged
 * otherwise. */
uint64_t ks_reserve_close(struct ks_reserve *reserve);

/* Looks at all reserves of this process on a cell. */
void ks_reserves_look(unsigned cell);

/* Has the driver return what it does not use of them. */
void ks_reserves_return(unsigned cell);

#endif

/* Memory that no call asks for by size. */
#ifndef FAKEGPU_OVERHEAD_H
#define FAKEGPU_OVERHEAD_H

#include "driver.h"

/** Takes memory for a context, until it ends or gives it back; false when the GPU has no room. */
bool context_charge(struct CUctx_st *context, uint64_t bytes);
void context_uncharge(struct CUctx_st *context, uint64_t bytes);

/** What a context, a module or a stream takes of this machine's GPUs, in bytes. */
uint64_t context_price(void);
uint64_t module_price(void);
uint64_t stream_price(void);

/** Gives a new context the usual limits. */
void context_limits(struct CUctx_st *context);

#endif

/* Memory of other interfaces: Vulkan's and the like. */
#ifndef FAKEGPU_EXTERNAL_H
#define FAKEGPU_EXTERNAL_H

#include "driver.h"

/** Frees what a context that ends still has; driver.lock held. */
void release_external_of(const struct CUctx_st *context);

#endif

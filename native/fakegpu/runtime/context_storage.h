/* What the CUDA runtime keeps with a context, by keys of its own. */
#ifndef FAKEGPU_CONTEXT_STORAGE_H
#define FAKEGPU_CONTEXT_STORAGE_H

#include "../cuda/driver.h"

/** Called when the context ends: the context, the key, the value. */
typedef void storage_destructor(CUcontext context, void *key, void *value);

/** Keeps a value; NULL is the current context. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult context_storage_put(CUcontext context, void *key, void *value,
                             storage_destructor *destructor);

/** Forgets a value, without its destructor. */
CUresult context_storage_delete(CUcontext context, void *key);

/** CUDA_ERROR_INVALID_HANDLE where the context keeps nothing by that key. */
CUresult context_storage_get(void **value, CUcontext context, void *key);

/** Forgets the values of a context that ends, each with its destructor. */
void context_storage_end(struct CUctx_st *context);

#endif

/* What the CUDA runtime keeps with a context, by keys of its own. */
#include "context_storage.h"

#include <stdlib.h>

struct stored {
    struct CUctx_st *context;
    void *key, *value;
    storage_destructor *destructor;
    struct stored *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stored *all;

/* The place that points to what is stored, or to the list's end; the caller holds the lock. */
static struct stored **find(const struct CUctx_st *context, const void *key) {
    struct stored **place = &all;
    while (*place != NULL && ((*place)->context != context || (*place)->key != key))
        place = &(*place)->next;
    return place;
}

static struct stored *take(const struct CUctx_st *context, const void *key) {
    pthread_mutex_lock(&lock);
    struct stored **place = find(context, key);
    struct stored *taken = *place;
    if (taken != NULL)
        *place = taken->next;
    pthread_mutex_unlock(&lock);
    return taken;
}

CUresult context_storage_put(CUcontext handle, void *key, void *value,
                             storage_destructor *destructor) {
    struct CUctx_st *context;
    TRY(find_context(handle, &context));
    struct stored *kept = malloc(sizeof *kept);
    REQUIRE(kept != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    free(take(context, key));
    pthread_mutex_lock(&lock);
    *kept = (struct stored){context, key, value, destructor, all};
    all = kept;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult context_storage_delete(CUcontext handle, void *key) {
    struct CUctx_st *context;
    TRY(find_context(handle, &context));
    free(take(context, key));
    return CUDA_SUCCESS;
}

CUresult context_storage_get(void **value, CUcontext handle, void *key) {
    struct CUctx_st *context;
    TRY(find_context(handle, &context));
    REQUIRE(value != NULL, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&lock);
    const struct stored *kept = *find(context, key);
    if (kept != NULL)
        *value = kept->value;
    pthread_mutex_unlock(&lock);
    return kept != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void context_storage_end(struct CUctx_st *context) {
    for (;;) {
        pthread_mutex_lock(&lock);
        struct stored **place = &all;
        while (*place != NULL && (*place)->context != context)
            place = &(*place)->next;
        struct stored *ended = *place;
        if (ended != NULL)
            *place = ended->next;
        pthread_mutex_unlock(&lock);
        if (ended == NULL)
            return;
        if (ended->destructor != NULL)
            ended->destructor(context, ended->key, ended->value);
        free(ended);
    }
}

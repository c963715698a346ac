#include "user_object.h"

#include <stdlib.h>

#include "deferred.h"
#include "graph.h"
#include "host.h"

struct CUuserObject_st {
    struct operation destroy; /* the program's function */
    unsigned references;      /* atomic */
};

/* ---- references ----------------------------------------------------------------- */

static void release(CUuserObject object, unsigned count) {
    if (__atomic_sub_fetch(&object->references, count, __ATOMIC_ACQ_REL) == 0)
        host_call(&object->destroy, free, object);
}

static void release_list(struct user_reference *list) {
    while (list != NULL) {
        struct user_reference *reference = list;
        list = list->next;
        release(reference->object, reference->count);
        free(reference);
    }
}

/* What a launched graph left in the list may still use them. */
static struct {
    pthread_mutex_t lock;
    struct user_reference *waiting;
} later = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *release_later(void *unused) {
    (void)unused;
    for (int i = 0; i < driver.device_count; i++)
        deferred_wait_device(&driver.devices[i]);
    pthread_mutex_lock(&later.lock);
    struct user_reference *list = later.waiting;
    later.waiting = NULL;
    pthread_mutex_unlock(&later.lock);
    release_list(list);
    return NULL;
}

void user_references_end(struct user_reference **list) {
    struct user_reference *all = *list;
    *list = NULL;
    if (all == NULL || !deferred_any()) {
        release_list(all);
        return;
    }
    struct user_reference **end = &all;
    while (*end != NULL)
        end = &(*end)->next;
    pthread_mutex_lock(&later.lock);
    *end = later.waiting;
    later.waiting = all;
    pthread_mutex_unlock(&later.lock);
    driver_thread(release_later);
}

static bool add(struct user_reference **list, CUuserObject object, unsigned count) {
    struct user_reference *added = malloc(sizeof *added);
    if (added == NULL)
        return false;
    *added = (struct user_reference){object, count, *list};
    *list = added;
    return true;
}

bool user_references_copy(struct user_reference **to, const struct user_reference *from) {
    for (; from != NULL; from = from->next) {
        if (!add(to, from->object, from->count))
            return false;
        __atomic_add_fetch(&from->object->references, from->count, __ATOMIC_RELAXED);
    }
    return true;
}

/* ---- the calls -------------------------------------------------------------------- */

API cuUserObjectCreate(CUuserObject *object, void *data, CUhostFn destroy, unsigned int count,
                       unsigned int flags) {
    TRY(driver_ready());
    REQUIRE(object != NULL && destroy != NULL && count > 0 &&
                flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC,
            CUDA_ERROR_INVALID_VALUE);
    struct CUuserObject_st *created = malloc(sizeof *created);
    REQUIRE(created != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    *created = (struct CUuserObject_st){
        .destroy = {.kind = OPERATION_HOST, .host = {destroy, data}},
          .references = count
    };
    *object = created;
    return CUDA_SUCCESS;
}

API cuUserObjectRetain(CUuserObject object, unsigned int count) {
    TRY(driver_ready());
    REQUIRE(object != NULL && count > 0, CUDA_ERROR_INVALID_VALUE);
    __atomic_add_fetch(&object->references, count, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

API cuUserObjectRelease(CUuserObject object, unsigned int count) {
    TRY(driver_ready());
    REQUIRE(object != NULL && count > 0, CUDA_ERROR_INVALID_VALUE);
    release(object, count);
    return CUDA_SUCCESS;
}

/* With MOVE the references are the caller's own, else new ones. */
API cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                            unsigned int flags) {
    TRY(driver_ready());
    REQUIRE(graph != NULL && object != NULL && count > 0 &&
                (flags == 0 || flags == CU_GRAPH_USER_OBJECT_MOVE),
            CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&graphs_lock);
    bool added = add(&graph->objects, object, count);
    pthread_mutex_unlock(&graphs_lock);
    REQUIRE(added, CUDA_ERROR_OUT_OF_MEMORY);
    if (flags != CU_GRAPH_USER_OBJECT_MOVE)
        __atomic_add_fetch(&object->references, count, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

/* Takes references off a list; how many it had of those asked for. */
static unsigned take(struct user_reference **place, CUuserObject object, unsigned count) {
    unsigned taken = 0;
    while (*place != NULL && taken < count) {
        struct user_reference *reference = *place;
        unsigned part = reference->object != object        ? 0
                        : reference->count < count - taken ? reference->count
                                                           : count - taken;
        taken += part;
        reference->count -= part;
        if (reference->count == 0) {
            *place = reference->next;
            free(reference);
        } else {
            place = &reference->next;
        }
    }
    return taken;
}

API cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
    TRY(driver_ready());
    REQUIRE(graph != NULL && object != NULL && count > 0, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&graphs_lock);
    unsigned taken = take(&graph->objects, object, count);
    pthread_mutex_unlock(&graphs_lock);
    if (taken > 0)
        release(object, taken);
    return taken == count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

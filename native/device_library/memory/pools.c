/*
 * The list of pools. Those of a device belong to the driver, and are recorded when
 * they are first used; the application creates the others.
 */
#include "memory/pools.h"

#include "account.h"
#include "context.h"
#include "lock.h"
#include "lookup/driver_calls.h"
#include "lookup/real.h"
#include "session.h"

#define CREATED_MAX 256
#define DEVICES_MAX 64
#define POOLS_MAX   (CREATED_MAX + DEVICES_MAX)

static ks_lock lock; /* held while an entry is taken */
static struct ks_pool pools[POOLS_MAX];
static atomic_uint places; /* so many entries, from the first, have ever been used */

/* The pools that devices allocate from, where they are known: the index of the entry + 1 in the
 * lower half. The upper half is a new number whenever the application may have chosen others. */
static _Atomic uint64_t known_pools[DEVICES_MAX];
static atomic_uint choices;

/* With the lock of the reserve held: the handle of a pool that ends is not used. */
static bool get(const struct ks_reserve *reserve, int attribute, uint64_t *bytes) {
    const struct ks_pool *pool = (const struct ks_pool *)reserve;
    return atomic_load(&pool->state) == KS_POOL_LIVES &&
           KS_DRIVER(pool_get)(atomic_load(&pool->handle), attribute, bytes) == CUDA_SUCCESS;
}

static bool ask(const struct ks_reserve *reserve, uint64_t *bytes) {
    return get(reserve, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, bytes);
}

static bool ask_used(const struct ks_reserve *reserve, uint64_t *bytes) {
    return get(reserve, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, bytes);
}

static void trim_all(const struct ks_pool *pool) {
    if (atomic_load(&pool->state) == KS_POOL_LIVES)
        KS_DRIVER(pool_trim)(atomic_load(&pool->handle), 0);
}

/* Frees the entry of a pool that has ended, once all memory of it is freed. The lock of its reserve
 * is held. */
static void free_if_empty(struct ks_pool *pool) {
    if (atomic_load(&pool->state) != KS_POOL_ENDED || atomic_load(&pool->reserve.pieces) != 0 ||
        atomic_load(&pool->handle) == NULL)
        return;
    if (pool->charged)
        ks_account_give_back(pool->reserve.cell, pool->reserve.charged);
    pool->reserve.charged = 0;
    atomic_store_explicit(&pool->handle, NULL, memory_order_release);
}

static void set_state(struct ks_pool *pool, enum ks_pool_state state) {
    ks_acquire(&pool->reserve.lock, KS_LOCK_RESERVE);
    atomic_store(&pool->state, state);
    free_if_empty(pool);
    ks_release(&pool->reserve.lock);
}

/* The driver may reuse the handle of a pool that has ended. */
static struct ks_pool *find(CUmemoryPool handle) {
    const unsigned end = handle != NULL ? atomic_load(&places) : 0;
    for (unsigned i = 0; i < end; i++) {
        if (atomic_load_explicit(&pools[i].handle, memory_order_acquire) == handle &&
            atomic_load(&pools[i].state) != KS_POOL_ENDED)
            return &pools[i];
    }
    return NULL;
}

static struct ks_pool *free_entry(unsigned end) {
    for (unsigned i = 0; i < end; i++) {
        if (atomic_load(&pools[i].handle) == NULL) {
            if (atomic_load(&places) <= i)
                atomic_store(&places, i + 1);
            return &pools[i];
        }
    }
    ks_debug("more than %d memory pools at once", CREATED_MAX);
    return NULL;
}

/* A thread that visits all pools may still hold the lock of this entry's previous pool. */
static void fill(struct ks_pool *pool, CUmemoryPool handle, int cell) {
    ks_acquire(&pool->reserve.lock, KS_LOCK_RESERVE);
    atomic_store(&pool->state, KS_POOL_LIVES);
    pool->charged = cell != KS_NO_CELL;
    pool->reserve.cell = (unsigned)cell;
    pool->reserve.charged = 0;
    pool->reserve.promised = 0;
    pool->reserve.under_way = 0;
    pool->reserve.ask = ask;
    pool->reserve.ask_used = ask_used;
    atomic_store(&pool->reserve.pieces, 0);
    atomic_store(&pool->reserve.frees, 0);
    atomic_store_explicit(&pool->handle, handle, memory_order_release);
    ks_release(&pool->reserve.lock);
}

/* Finds a pool, or records it in one of the first `end` entries. KS_NO_CELL: it is not charged. */
static struct ks_pool *book(CUmemoryPool handle, int cell, unsigned end) {
    struct ks_pool *pool = find(handle);
    if (pool != NULL)
        return pool;
    ks_acquire(&lock, KS_LOCK_POOLS);
    pool = find(handle);
    if (pool == NULL && (pool = free_entry(end)) != NULL)
        fill(pool, handle, cell);
    ks_release(&lock);
    return pool;
}

struct ks_pool *ks_pool_of_device(CUmemoryPool handle, CUdevice device) {
    return book(handle, ks_cell_of_device(device), POOLS_MAX);
}

struct ks_pool *ks_pool_known(CUdevice device, uint64_t *seen) {
    *seen = 0;
    if (device < 0 || device >= DEVICES_MAX)
        return NULL;
    *seen = atomic_load_explicit(&known_pools[device], memory_order_acquire);
    const uint32_t found = (uint32_t)*seen;
    return found != 0 ? &pools[found - 1] : NULL;
}

void ks_pool_remember(CUdevice device, uint64_t seen, const struct ks_pool *pool) {
    if (device >= 0 && device < DEVICES_MAX)
        atomic_compare_exchange_strong(&known_pools[device], &seen,
                                       seen + (uint64_t)(pool - pools) + 1);
}

static void forget_known(void) {
    const uint64_t next = (uint64_t)(atomic_fetch_add(&choices, 1) + 1) << 32;
    for (unsigned device = 0; device < DEVICES_MAX; device++)
        atomic_store(&known_pools[device], next);
}

static bool is_on_device(const struct ks_location *location, CUdevice *device) {
    *device = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : location->device;
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ||
           location->type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN;
}

/* The cell of a pool by the driver's word; an older driver only has pools of the current device.
 * Managed memory without a location counts on the current device. */
static int cell_of_pool(CUmemoryPool handle) {
    struct ks_location location = {.type = CU_MEM_LOCATION_TYPE_NONE};
    CUdevice device;
    int cell = KS_NO_CELL;
    if (KS_DRIVER(pool_get)(handle, CU_MEMPOOL_ATTR_LOCATION_TYPE, &location.type) !=
            CUDA_SUCCESS ||
        location.type == CU_MEM_LOCATION_TYPE_NONE ||
        KS_DRIVER(pool_get)(handle, CU_MEMPOOL_ATTR_LOCATION_ID, &location.id) != CUDA_SUCCESS)
        return ks_current_cell(&cell) ? cell : KS_NO_CELL;
    return is_on_device(&location, &device) ? ks_cell_of_device(device) : KS_NO_CELL;
}

struct ks_pool *ks_pool_of_handle(CUmemoryPool handle) {
    struct ks_pool *pool = find(handle);
    CUmemoryPool default_pool;
    CUdevice devices = 0;
    uint64_t bytes;
    if (pool != NULL || handle == NULL)
        return pool;
    KS_DRIVER(device_get_count)(&devices);
    for (CUdevice device = 0; device < devices; device++) {
        if (KS_DRIVER(default_pool)(&default_pool, device) == CUDA_SUCCESS &&
            default_pool == handle)
            return ks_pool_of_device(handle, device);
    }
    if (KS_DRIVER(pool_get)(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) != CUDA_SUCCESS)
        return NULL;
    return book(handle, cell_of_pool(handle), POOLS_MAX);
}

bool ks_pool_frees(CUdeviceptr pointer, struct ks_allocation *allocation) {
    if (!ks_allocations_take(KS_POOL_MEMORY, pointer, allocation))
        return false;
    ks_reserve_frees(&((struct ks_pool *)allocation->owner)->reserve);
    return true;
}

CUresult ks_pool_freed(const struct ks_allocation *allocation, CUresult result) {
    struct ks_pool *pool = (struct ks_pool *)allocation->owner;
    if (result != CUDA_SUCCESS) {
        ks_allocations_add(allocation);
        return result;
    }
    ks_reserve_has_less(&pool->reserve);
    ks_acquire(&pool->reserve.lock, KS_LOCK_RESERVE);
    ks_reserve_settle(&pool->reserve);
    free_if_empty(pool);
    ks_release(&pool->reserve.lock);
    return result;
}

CUresult ks_pool_frees_later(const struct ks_allocation *allocation, CUresult result) {
    struct ks_pool *pool = (struct ks_pool *)allocation->owner;
    if (result != CUDA_SUCCESS) {
        ks_allocations_add(allocation);
        return result;
    }
    ks_reserve_has_less(&pool->reserve);
    if (atomic_load(&pool->state) == KS_POOL_LIVES)
        return result; /* if it ends now, it ends after this piece is gone */
    ks_acquire(&pool->reserve.lock, KS_LOCK_RESERVE);
    free_if_empty(pool);
    ks_release(&pool->reserve.lock);
    return result;
}

/* Takes the lock of a pool that is charged; false if the entry has none. */
static bool enter(struct ks_pool *pool) {
    if (atomic_load(&pool->handle) == NULL)
        return false;
    ks_acquire(&pool->reserve.lock, KS_LOCK_RESERVE);
    if (atomic_load(&pool->handle) != NULL && pool->charged)
        return true;
    ks_release(&pool->reserve.lock);
    return false;
}

void ks_pools_visit(unsigned cell, bool trim) {
    for (unsigned i = 0; i < atomic_load(&places); i++) {
        struct ks_pool *pool = &pools[i];
        if (!enter(pool))
            continue;
        if (pool->reserve.cell == cell) {
            if (trim)
                trim_all(pool);
            ks_reserve_settle(&pool->reserve);
        }
        ks_release(&pool->reserve.lock);
    }
}

void ks_pools_synchronized(void) {
    const unsigned cells =
        atomic_load_explicit(&places, memory_order_relaxed) != 0 ? ks_session_cells() : 0;
    for (unsigned cell = 0; cell < cells; cell++)
        ks_pools_visit(cell, false);
}

void ks_pools_context_ended(uint64_t in_use) {
    forget_known();
    for (unsigned i = 0; i < atomic_load(&places); i++) {
        struct ks_pool *pool = &pools[i];
        if (!enter(pool))
            continue;
        ks_reserve_settle(&pool->reserve);
        const bool lost = atomic_load(&pool->state) == KS_POOL_ENDED
                              ? (in_use >> pool->reserve.cell & 1) == 0
                              : pool->reserve.charged == 0;
        if (lost)
            atomic_fetch_sub(&pool->reserve.pieces,
                             ks_allocations_drop_pool((uint64_t)(uintptr_t)pool));
        free_if_empty(pool);
        ks_release(&pool->reserve.lock);
    }
}

void ks_pools_forget(void) {
    lock = (ks_lock){0};
    forget_known();
    for (unsigned i = 0; i < POOLS_MAX; i++) {
        pools[i].reserve.lock = (ks_lock){0};
        atomic_store(&pools[i].handle, NULL);
    }
    atomic_store(&places, 0);
}

/* ---- hooks ---------------------------------------------------------------------------- */

static CUresult keep(CUmemoryPool handle, int cell) {
    if (book(handle, cell, CREATED_MAX) != NULL)
        return CUDA_SUCCESS;
    KS_DRIVER(pool_destroy)(handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

int cuMemPoolCreate(CUmemoryPool *pool, const struct ks_pool_properties *properties) {
    CUdevice device;
    int cell = KS_NO_CELL;
    if (!ks_session_is_open() || properties == NULL)
        return KS_REAL(cuMemPoolCreate)(pool, properties);
    if (is_on_device(&properties->location, &device)) {
        cell = ks_cell_of_device(device);
        if (cell == KS_NO_CELL)
            return CUDA_ERROR_NOT_PERMITTED;
    } else if (properties->location.type == CU_MEM_LOCATION_TYPE_NONE) {
        ks_current_cell(&cell);
    }
    const CUresult result = KS_REAL(cuMemPoolCreate)(pool, properties);
    return result == CUDA_SUCCESS ? keep(*pool, cell) : result;
}

/* The process that created it is charged. */
int cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle, int type,
                                       unsigned long long flags) {
    const CUresult result = KS_REAL(cuMemPoolImportFromShareableHandle)(pool, handle, type, flags);
    if (result != CUDA_SUCCESS || !ks_session_is_open())
        return result;
    return keep(*pool, KS_NO_CELL);
}

int cuMemPoolDestroy(CUmemoryPool handle) {
    struct ks_pool *pool = find(handle);
    if (pool == NULL)
        return KS_REAL(cuMemPoolDestroy)(handle);
    if (pool->charged)
        ks_reserve_look(&pool->reserve);
    set_state(pool, KS_POOL_ENDS);
    const CUresult result = KS_REAL(cuMemPoolDestroy)(handle);
    forget_known(); /* its device allocates from its default pool again */
    set_state(pool, result == CUDA_SUCCESS ? KS_POOL_ENDED : KS_POOL_LIVES);
    return result;
}

int cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
    const CUresult result = KS_REAL(cuDeviceSetMemPool)(device, pool);
    forget_known();
    return result;
}

int cuMemSetMemPool(struct ks_location *location, int type, CUmemoryPool pool) {
    const CUresult result = KS_REAL(cuMemSetMemPool)(location, type, pool);
    forget_known();
    return result;
}

int cuMemPoolTrimTo(CUmemoryPool handle, size_t bytes) {
    const CUresult result = KS_REAL(cuMemPoolTrimTo)(handle, bytes);
    struct ks_pool *pool = find(handle);
    if (result == CUDA_SUCCESS && pool != NULL && pool->charged)
        ks_reserve_look(&pool->reserve);
    return result;
}

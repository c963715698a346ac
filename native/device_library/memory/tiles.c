/*
 * Physical memory that is mapped into sparse and deferred arrays, one tile at a
 * time. Like a mapping at an address, each tile is a use of the memory; it ends
 * when it is unmapped, when something else is mapped in its place, or with the
 * array.
 */
#include "memory/tiles.h"

#include "lookup/real.h"
#include "memory/allocations.h"
#include "memory/virtual.h"
#include "session.h"

#include <stdatomic.h>

static atomic_bool any; /* a tile has been mapped */

static uint64_t mix(uint64_t hash, uint64_t value) {
    return (hash ^ value) * UINT64_C(0x100000001b3);
}

/* A hash of the place of a mapping. If two places had the same hash, one mapping could count as
 * undone too early; the chance is one in 2^64 for each pair. */
static uint64_t place_of(const struct ks_array_mapping *mapping) {
    uint64_t hash = mix(UINT64_C(0xcbf29ce484222325), (uint64_t)(uintptr_t)mapping->array);
    hash = mix(hash, (uint64_t)mapping->part_type);
    if (mapping->part_type == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
        hash = mix(hash, mapping->tail.layer);
        hash = mix(hash, mapping->tail.offset);
    } else {
        hash = mix(hash, (uint64_t)mapping->level << 32 | mapping->layer);
        for (unsigned i = 0; i < 3; i++)
            hash = mix(hash, mapping->start[i]);
    }
    return hash ^ hash >> 29;
}

static void note(const struct ks_array_mapping *mapping) {
    struct ks_allocation before;
    const struct ks_allocation tile = {.kind = KS_TILE,
                                       .handle = place_of(mapping),
                                       .bytes = (uint64_t)(uintptr_t)mapping->array,
                                       .owner = mapping->handle};
    if (ks_allocations_take(KS_TILE, tile.handle, &before))
        ks_physical_leave(before.owner);
    if (mapping->operation != CU_MEM_OPERATION_TYPE_MAP)
        return;
    atomic_store(&any, true);
    /* Without an entry for the tile, the memory is charged only as long as it has a handle. */
    if (ks_allocations_add(&tile))
        ks_allocations_use(KS_PHYSICAL, mapping->handle);
}

static CUresult mapped(const struct ks_array_mapping *mappings, unsigned int count,
                       CUresult result) {
    for (unsigned int i = 0; result == CUDA_SUCCESS && ks_session_is_open() && i < count; i++)
        note(&mappings[i]);
    return result;
}

int cuMemMapArrayAsync(struct ks_array_mapping *mappings, unsigned int count, CUstream stream) {
    return mapped(mappings, count, KS_REAL(cuMemMapArrayAsync)(mappings, count, stream));
}

int cuMemMapArrayAsync_ptsz(struct ks_array_mapping *mappings, unsigned int count,
                            CUstream stream) {
    return mapped(mappings, count, KS_REAL(cuMemMapArrayAsync_ptsz)(mappings, count, stream));
}

void ks_tiles_of_array_ended(uint64_t array) {
    struct ks_allocation tile;
    while (atomic_load_explicit(&any, memory_order_relaxed) &&
           ks_allocations_take_tile(array, &tile))
        ks_physical_leave(tile.owner);
}

void ks_tiles_forget(void) {
    atomic_store(&any, false);
}

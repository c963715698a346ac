/*
 * Physical memory that the application maps at addresses of its choice. It lives
 * until its last handle is released and its last mapping undone: both are uses of
 * it. Memory of another process, and of the host, is recorded with a charge of 0,
 * so that its mappings are found too, and may get one later: see imports.h.
 */
#include "memory/virtual.h"

#include "context.h"
#include "lookup/driver_calls.h"
#include "lookup/real.h"
#include "memory/charge.h"
#include "memory/imports.h"
#include "session.h"

/* ---- making and releasing ------------------------------------------------------- */

static void undo(uint64_t handle) {
    KS_REAL(cuMemRelease)(handle);
}

static bool is_on_device(const struct ks_location *location, CUdevice *device) {
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN)
        *device = location->device;
    else
        *device = location->id;
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ||
           location->type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN;
}

static CUresult keep_uncharged(CUmemGenericAllocationHandle handle, CUresult result, uint64_t owner,
                               int cell) {
    struct ks_allocation allocation = {
        .kind = KS_PHYSICAL, .uses = 1, .owner = owner, .cell = (uint16_t)cell};
    return ks_session_is_open() && result == CUDA_SUCCESS
               ? ks_book(&allocation, handle, result, undo)
               : result;
}

/* The driver tells the granularity of well-formed properties only. */
static bool is_malformed(const CUmemGenericAllocationHandle *handle, size_t bytes,
                         const struct ks_allocation_properties *properties,
                         unsigned long long flags) {
    size_t unit;
    return handle == NULL || flags != 0 ||
           (KS_DRIVER(granularity)(&unit, properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
                CUDA_SUCCESS &&
            bytes % unit != 0);
}

int cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                const struct ks_allocation_properties *properties, unsigned long long flags) {
    struct ks_allocation allocation;
    CUdevice device;
    CUresult result;
    if (properties == NULL || !is_on_device(&properties->location, &device)) {
        result = KS_REAL(cuMemCreate)(handle, bytes, properties, flags);
        return keep_uncharged(KS_HANDLE(result, handle), result, 0, 0);
    }
    if (!ks_describe_on(&allocation, KS_PHYSICAL, device, bytes, &result))
        return KS_REAL(cuMemCreate)(handle, bytes, properties, flags);
    if (result == CUDA_SUCCESS)
        result = ks_charge(allocation.cell, allocation.bytes);
    if (result != CUDA_SUCCESS)
        return ks_refused(result, is_malformed(handle, bytes, properties, flags));
    result = KS_REAL(cuMemCreate)(handle, bytes, properties, flags);
    return ks_book(&allocation, KS_HANDLE(result, handle), result, undo);
}

int cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle, int type,
                                 unsigned long long flags) {
    const CUresult result = KS_REAL(cuMemExportToShareableHandle)(shared, handle, type, flags);
    if (result == CUDA_SUCCESS)
        ks_imports_may_follow(handle);
    return result;
}

/* Memory of the host takes no charge. */
static CUresult keep_imported(CUmemGenericAllocationHandle handle, CUresult result) {
    struct ks_allocation_properties properties;
    CUdevice device;
    if (result != CUDA_SUCCESS)
        return result;
    if (KS_DRIVER(physical_properties)(&properties, handle) != CUDA_SUCCESS)
        return keep_uncharged(handle, result, ks_imports_number(), KS_ANY_CELL);
    if (!is_on_device(&properties.location, &device) || ks_cell_of_device(device) == KS_NO_CELL)
        return keep_uncharged(handle, result, 0, 0);
    return keep_uncharged(handle, result, ks_imports_number(), ks_cell_of_device(device));
}

/* A driver may answer with a handle that this process has already. */
int cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared, int type) {
    struct ks_allocation known;
    const CUresult result = KS_REAL(cuMemImportFromShareableHandle)(handle, shared, type);
    if (result == CUDA_SUCCESS && ks_allocations_find(KS_PHYSICAL, *handle, &known)) {
        ks_allocations_use(KS_PHYSICAL, *handle);
        return result;
    }
    return keep_imported(KS_HANDLE(result, handle), result);
}

int cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    const CUresult result = KS_REAL(cuMemRetainAllocationHandle)(handle, address);
    if (result == CUDA_SUCCESS)
        ks_allocations_use(KS_PHYSICAL, *handle);
    return result;
}

static CUresult ended(struct ks_allocation *physical, CUresult result) {
    return result == CUDA_SUCCESS && !ks_imports_end(physical) ? result
                                                               : ks_freed(physical, result);
}

void ks_physical_leave(uint64_t handle) {
    struct ks_allocation physical;
    if (ks_allocations_leave(KS_PHYSICAL, handle, &physical))
        ended(&physical, CUDA_SUCCESS);
}

/* The use ends before the driver can hand out the same handle again. */
int cuMemRelease(CUmemGenericAllocationHandle handle) {
    struct ks_allocation physical;
    if (!ks_allocations_leave(KS_PHYSICAL, handle, &physical)) {
        const CUresult result = KS_REAL(cuMemRelease)(handle);
        if (result != CUDA_SUCCESS)
            ks_allocations_use(KS_PHYSICAL, handle);
        return result;
    }
    return ended(&physical, KS_REAL(cuMemRelease)(handle));
}

/* ---- mapping ---------------------------------------------------------------------- */

int cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags) {
    struct ks_allocation mapping = {
        .kind = KS_MAPPING, .handle = address, .bytes = bytes, .owner = handle};
    const CUresult result = KS_REAL(cuMemMap)(address, bytes, offset, handle, flags);
    if (result != CUDA_SUCCESS || !ks_session_is_open())
        return result;
    if (!ks_allocations_add(&mapping)) {
        KS_REAL(cuMemUnmap)(address, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ks_allocations_use(KS_PHYSICAL, handle);
    return result;
}

/* One call may undo several adjacent mappings. */
int cuMemUnmap(CUdeviceptr address, size_t bytes) {
    const CUresult result = KS_REAL(cuMemUnmap)(address, bytes);
    struct ks_allocation mapping;
    uint64_t place = address;
    while (result == CUDA_SUCCESS && place - address < bytes &&
           ks_allocations_take(KS_MAPPING, place, &mapping)) {
        ks_physical_leave(mapping.owner);
        place += mapping.bytes;
    }
    return result;
}

/*
 * NVML reports the same memory as the driver: programs compare the two.
 */
#include "lookup/driver_calls.h"
#include "lookup/real.h"
#include "memory/queries.h"
#include "nvml_cell.h"
#include "process.h"
#include "session.h"

#include <string.h>

static int nibble(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    return -1;
}

/* The bytes of "GPU-01234567-89ab-…". */
static bool parse_uuid(const char *text, unsigned char uuid[16]) {
    if (strncmp(text, "GPU-", 4) != 0)
        return false;
    text += 4;
    for (unsigned i = 0; i < 16; i++) {
        if (*text == '-')
            text++;
        const int high = nibble(text[0]);
        const int low = high < 0 ? -1 : nibble(text[1]);
        if (low < 0)
            return false;
        uuid[i] = (unsigned char)(high * 16 + low);
        text += 2;
    }
    return *text == 0;
}

int ks_nvml_cell(nvmlDevice_t device) {
    char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    unsigned char uuid[16];
    if (!ks_process_start() ||
        KS_DRIVER(nvml_device_get_uuid)(device, text, sizeof text) != NVML_SUCCESS ||
        !parse_uuid(text, uuid))
        return KS_NO_CELL;
    return ks_session_cell_of_uuid(uuid);
}

/* Replaces the figures of the whole GPU by those of the session; false if the GPU is not in the
 * session, or NVML returned an error. */
static bool narrow(nvmlReturn_t result, nvmlDevice_t device, unsigned long long *total,
                   unsigned long long *available, unsigned long long *used) {
    const int cell = result == NVML_SUCCESS ? ks_nvml_cell(device) : KS_NO_CELL;
    if (cell == KS_NO_CELL)
        return false;
    uint64_t seen_available = *available, seen_total = *total;
    ks_memory_as_seen((unsigned)cell, &seen_available, &seen_total);
    *total = seen_total;
    *available = seen_available;
    *used = seen_total - seen_available;
    return true;
}

int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    const nvmlReturn_t result = KS_REAL(nvmlDeviceGetMemoryInfo)(device, memory);
    narrow(result, device, &memory->total, &memory->free, &memory->used);
    return result;
}

/* What the driver keeps for itself does not count against the limit: none of it is shown. */
int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    const nvmlReturn_t result = KS_REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
    if (narrow(result, device, &memory->total, &memory->free, &memory->used))
        memory->reserved = 0;
    return result;
}

/* The window through which the host reaches the memory has the size of the memory. */
int nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
    const nvmlReturn_t result = KS_REAL(nvmlDeviceGetBAR1MemoryInfo)(device, memory);
    narrow(result, device, &memory->total, &memory->free, &memory->used);
    return result;
}

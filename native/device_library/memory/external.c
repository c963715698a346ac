/*
 * Memory that another interface (Vulkan, OpenGL) allocated in this process: it is
 * charged when it is imported, because nothing has counted it before.
 */
#include "lookup/real.h"
#include "memory/charge.h"

static void undo(uint64_t memory) {
    KS_REAL(cuDestroyExternalMemory)((CUexternalMemory)memory);
}

int cuImportExternalMemory(CUexternalMemory *memory, const struct ks_external_memory *description) {
    if (description == NULL)
        return KS_REAL(cuImportExternalMemory)(memory, description);
    KS_ALLOCATE(KS_EXTERNAL_MEMORY, ks_round_up(description->bytes, KS_PAGE_BYTES), memory,
                memory == NULL, KS_REAL(cuImportExternalMemory)(memory, description), undo);
}

int cuDestroyExternalMemory(CUexternalMemory memory) {
    KS_FREE(KS_EXTERNAL_MEMORY, memory, KS_REAL(cuDestroyExternalMemory)(memory));
}

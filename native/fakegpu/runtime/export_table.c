/*
 * The tables of functions that cuGetExportTable returns, as far as the CUDA runtime uses them.
 *
 * NVIDIA documents none of them. What stands where, and with which parameters, is known from public
 * sources, above all those of ZLUDA (dark_api/src/lib.rs). A table begins with its size in bytes
 * unless it says otherwise; a place of which nothing is known has a function that reports its use.
 */
#include "export_table.h"

#include <string.h>

#include "context_storage.h"

API cuCtxGetCurrent(CUcontext *context);
API cuCtxGetDevice_v2(CUdevice *device, CUcontext context);
API cuCtxGetId(CUcontext context, unsigned long long *id);
API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
API cuModuleLoadData(CUmodule *module, const void *image);

static CUresult unknown_entry(void) {
    static int said;
    return (CUresult)not_modelled("an entry of an export table", &said, CUDA_ERROR_NOT_SUPPORTED);
}

/* ---- contexts and code -------------------------------------------------------------- */

static CUresult load(CUmodule *module, const void *image, void *a, void *b, unsigned c) {
    (void)a, (void)b, (void)c;
    return cuModuleLoadData(module, image);
}

static CUresult load_image(const void *image, CUmodule *module, void *a, void *b, unsigned c) {
    return load(module, image, a, b, c);
}

static void ignore(size_t unknown) {
    (void)unknown;
}

static CUresult load_compilers(void) {
    return CUDA_SUCCESS;
}

static CUresult check_context(CUcontext context, uint32_t *flags, const void **unknown) {
    (void)context, (void)unknown;
    *flags = 0;
    return CUDA_SUCCESS;
}

static uint32_t check_nothing(void) {
    return 0;
}

/* ---- the switches of tools, all off ---------------------------------------------------- */

#define FIRST_WORDS  1024u
#define SECOND_WORDS 14u

static void first_switches(void **switches, size_t *words) {
    static uint32_t off[FIRST_WORDS];
    *switches = off;
    *words = FIRST_WORDS;
}

static void second_switches(void **switches, size_t *words) {
    static uint32_t off[SECOND_WORDS];
    *switches = off;
    *words = SECOND_WORDS;
}

/* ---- the tables --------------------------------------------------------------------------- */

#define ENTRY(function) ((table_entry)(function))

table_entry runtime_table[13] = {
    [1] = ENTRY(cuModuleLoadData),
    [2] = ENTRY(cuDevicePrimaryCtxRetain),
    [6] = ENTRY(load),
    [7] = ENTRY(ignore),
    [8] = ENTRY(load_image),
    [12] = ENTRY(load_compilers),
};

table_entry check_table[3] = {[1] = ENTRY(check_driver)};

static table_entry thread_table[4] = {[2] = ENTRY(cuCtxGetCurrent)};

static table_entry switch_table[7] = {[2] = ENTRY(first_switches), [6] = ENTRY(second_switches)};

static table_entry storage_table[4] = {
    [0] = ENTRY(context_storage_put),
    [1] = ENTRY(context_storage_delete),
    [2] = ENTRY(context_storage_get),
};

static table_entry checked_table[4] = {[2] = ENTRY(check_context), [3] = ENTRY(check_nothing)};

static table_entry context_table[95] = {[3] = ENTRY(cuCtxGetDevice_v2), [4] = ENTRY(cuCtxGetId)};

#define TABLE(entries) (entries), sizeof(entries) / sizeof *(entries)

static const struct {
    const char *id;
    table_entry *entry;
    size_t entries;
} tables[] = {
    {"\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9", TABLE(runtime_table)},
    {"\xd4\x08\x20\x55\xbd\xe6\x70\x4b\x8d\x34\xba\x12\x3c\x66\xe1\xf2", TABLE(check_table)  },
    {"\x42\xd8\x5a\x81\x23\xf6\xcb\x47\x82\x98\xf6\xe7\x8a\x3a\xec\xdc", TABLE(thread_table) },
    {"\xa0\x94\x79\x8c\x2e\x74\x2e\x74\x93\xf2\x08\x00\x20\x0c\x0a\x66", TABLE(switch_table) },
    {"\xc6\x93\x33\x6e\x11\x21\xdf\x11\xa8\xc3\x68\xf3\x55\xd8\x95\x93", TABLE(storage_table)},
    {"\x26\x3e\x88\x60\x7c\xd2\x61\x43\x92\xf6\xbb\xd5\x00\x6d\xfa\x7e", TABLE(checked_table)},
    {"\x21\x31\x8c\x60\x97\x14\x32\x48\x8c\xa6\x41\xff\x73\x24\xc8\xf2", TABLE(context_table)},
};

static void complete_tables(void) {
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        table_entry *entry = tables[i].entry;
        if (entry[0] == NULL)
            entry[0] = ENTRY(tables[i].entries * sizeof *entry);
        for (size_t place = 1; place < tables[i].entries; place++)
            if (entry[place] == NULL)
                entry[place] = ENTRY(unknown_entry);
    }
}

API cuGetExportTable(const void **table, const CUuuid *id) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static int said;
    REQUIRE(table != NULL && id != NULL, CUDA_ERROR_INVALID_VALUE);
    pthread_once(&once, complete_tables);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (memcmp(tables[i].id, id->bytes, sizeof id->bytes) == 0) {
            *table = tables[i].entry;
            return CUDA_SUCCESS;
        }
    }
    return (CUresult)not_modelled("an export table", &said, CUDA_ERROR_INVALID_VALUE);
}

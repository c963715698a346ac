/*
 * Finds the real dlsym without dlsym.
 *
 * References to dlsym and dlvsym from this library would bind to its own
 * exports, and glibc 2.34 removed the private entry. So this file walks the
 * loader's list of objects and looks the symbol up in each object's hash table.
 * The same walk finds pthread_create, which is in libpthread before glibc 2.34:
 * so the library needs libc alone, and loads into every program.
 *
 * The list is read as a debugger reads it, not with dl_iterate_phdr: sanitizers
 * and others interpose that function, and find the real one with dlsym, from
 * inside this library's dlsym.
 */
#include "lookup/loader.h"

#include "lookup/text.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *hash; /* DT_GNU_HASH */
};

static uint32_t gnu_hash(const char *name) {
    uint32_t hash = 5381;
    for (const unsigned char *byte = (const unsigned char *)name; *byte != 0; byte++)
        hash = hash * 33 + *byte;
    return hash;
}

static void *look_up(const struct tables *tables, uintptr_t base, const char *name) {
    const uint32_t buckets = tables->hash[0];
    const uint32_t first = tables->hash[1];
    const uint32_t bloom_words = tables->hash[2];
    const uint32_t *bucket = tables->hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chain = bucket + buckets;
    const uint32_t wanted = gnu_hash(name);
    if (buckets == 0)
        return NULL;
    uint32_t index = bucket[wanted % buckets];
    if (index < first)
        return NULL;
    for (;; index++) {
        const ElfW(Sym) *symbol = &tables->symbols[index];
        const uint32_t hash = chain[index - first];
        if ((hash | 1) == (wanted | 1) && symbol->st_shndx != SHN_UNDEF &&
            ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
            ks_is_same(tables->strings + symbol->st_name, name))
            return (void *)(base + symbol->st_value);
        if ((hash & 1) != 0)
            return NULL;
    }
}

/* What debuggers read, in glibc and in musl. Weak: each has only one of them. */
extern struct r_debug _r_debug __attribute__((weak));
extern struct r_debug *_dl_debug_addr __attribute__((weak));

static const struct link_map *first_object(void) {
    if (&_r_debug != NULL)
        return _r_debug.r_map;
    return &_dl_debug_addr != NULL ? _dl_debug_addr->r_map : NULL;
}

/* glibc relocates these entries in place; the kernel's vDSO keeps them relative. */
static uintptr_t absolute(const struct link_map *object, uintptr_t value) {
    return value < object->l_addr ? object->l_addr + value : value;
}

static bool read_tables(const struct link_map *object, struct tables *tables) {
    *tables = (struct tables){0};
    for (const ElfW(Dyn) *entry = object->l_ld; entry->d_tag != DT_NULL; entry++) {
        const uintptr_t value = absolute(object, entry->d_un.d_ptr);
        if (entry->d_tag == DT_SYMTAB)
            tables->symbols = (const ElfW(Sym) *)value;
        else if (entry->d_tag == DT_STRTAB)
            tables->strings = (const char *)value;
        else if (entry->d_tag == DT_GNU_HASH)
            tables->hash = (const uint32_t *)value;
    }
    return tables->symbols != NULL && tables->strings != NULL && tables->hash != NULL;
}

static void *first_from(const struct link_map *object, const char *name) {
    void *found = NULL;
    for (; object != NULL && found == NULL; object = object->l_next) {
        struct tables tables;
        if (object->l_ld != _DYNAMIC && read_tables(object, &tables))
            found = look_up(&tables, object->l_addr, name);
    }
    return found;
}

void *ks_libc_symbol(const char *name) {
    return first_from(first_object(), name);
}

/* What comes before this library may interpose dlsym too, and call the next one, which is ours: the
 * two would call each other for ever. */
static void *behind_this_library(const char *name) {
    const struct link_map *object = first_object();
    while (object != NULL && object->l_ld != _DYNAMIC)
        object = object->l_next;
    void *found = first_from(object, name);
    return found != NULL ? found : ks_libc_symbol(name);
}

/* Objects do not overlap: the last one that begins before an address contains it. */
static const struct link_map *object_of(const void *address) {
    const struct link_map *found = NULL;
    for (const struct link_map *object = first_object(); object != NULL; object = object->l_next) {
        if (object->l_addr <= (uintptr_t)address &&
            (found == NULL || object->l_addr > found->l_addr))
            found = object;
    }
    return found;
}

struct search {
    const char *name;
    const void *caller;
    void *found;
};

/* Called by dl_iterate_phdr, for its lock: the first call does all the work. */
static int search_behind(struct dl_phdr_info *unused, size_t size, void *data) {
    struct search *search = data;
    const struct link_map *object = object_of(search->caller);
    (void)unused;
    (void)size;
    while (object != NULL && search->found == NULL && (object = object->l_next) != NULL) {
        struct tables tables;
        if (object->l_ld == _DYNAMIC)
            break;
        if (read_tables(object, &tables))
            search->found = look_up(&tables, object->l_addr, search->name);
    }
    return 1;
}

typedef void *find_function(const char *name);

static void *found_by(find_function *find, void *_Atomic *place, const char *name) {
    void *address = atomic_load_explicit(place, memory_order_relaxed);
    if (address == NULL) {
        address = find(name);
        atomic_store_explicit(place, address, memory_order_relaxed);
    }
    return address;
}

static void *cached(void *_Atomic *place, const char *name) {
    return found_by(ks_libc_symbol, place, name);
}

static void *_Atomic real_dlsym;
static void *_Atomic real_dlvsym;
static void *_Atomic real_dlopen;
static void *_Atomic real_dlerror;
static void *_Atomic real_iterate;

typedef int iterate_function(int (*)(struct dl_phdr_info *, size_t, void *), void *);

/* Unlike the others, which search once and early, this may run while a thread closes a library: the
 * lock of dl_iterate_phdr prevents that. */
void *ks_next_symbol(const char *name, const void *caller) {
    iterate_function *iterate = (iterate_function *)cached(&real_iterate, "dl_iterate_phdr");
    struct search search = {.name = name, .caller = caller};
    if (iterate != NULL)
        iterate(search_behind, &search);
    return search.found;
}

typedef int describe_function(const void *, Dl_info *, void **, int);

/* The object that contains an address, in whatever namespace; NULL if none does. */
static struct link_map *containing(const void *address) {
    static void *_Atomic real_dladdr1;
    describe_function *describe = (describe_function *)cached(&real_dladdr1, "dladdr1");
    Dl_info info;
    void *object = NULL;
    if (describe == NULL || describe(address, &info, &object, RTLD_DL_LINKMAP) == 0)
        return NULL;
    return object;
}

/* Several of its names: libraries that stand in for these have one or the other of them. */
static const char *const names_of_driver[] = {
    "cuInit",
    "cuDriverGetVersion",
    "cuGetExportTable",
    "cuGetProcAddress",
    "cuMemAlloc_v2",
    "cuLaunchKernel",
    NULL,
};
static const char *const names_of_nvml[] = {
    "nvmlInit_v2",
    "nvmlShutdown",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetMemoryInfo",
    NULL,
};

static bool exports_all(const struct link_map *object, const char *const *names) {
    struct tables tables;
    if (object->l_ld == _DYNAMIC || !read_tables(object, &tables))
        return false;
    while (*names != NULL && look_up(&tables, object->l_addr, *names) != NULL)
        names++;
    return *names == NULL;
}

struct question {
    const struct link_map *object;
    const char *const *names;
    bool answer;
};

/* Called by dl_iterate_phdr, as search_behind is. */
static int ask_own_namespace(struct dl_phdr_info *unused, size_t size, void *data) {
    struct question *question = data;
    const struct link_map *object = first_object();
    (void)unused;
    (void)size;
    while (object != NULL && object != question->object)
        object = object->l_next;
    question->answer = object != NULL && exports_all(object, question->names);
    return 1;
}

bool ks_is_in(const char *soname, const void *address) {
    const bool nvml = ks_is_same(soname, "libnvidia-ml.so.1");
    struct question question = {.object = containing(address),
                                .names = nvml ? names_of_nvml : names_of_driver};
    iterate_function *iterate = (iterate_function *)cached(&real_iterate, "dl_iterate_phdr");
    if (question.object != NULL && iterate != NULL)
        iterate(ask_own_namespace, &question);
    return question.answer;
}

void *ks_symbol_for(const void *caller, const char *name) {
    void *(*symbol)(void *, const char *) = (void *(*)(void *, const char *))ks_real_dlsym();
    struct link_map *object = containing(caller);
    return object != NULL ? symbol(object, name) : NULL;
}

void *ks_real_dlsym(void) {
    return found_by(behind_this_library, &real_dlsym, "dlsym");
}

void *ks_real_dlvsym(void) {
    return found_by(behind_this_library, &real_dlvsym, "dlvsym");
}

/* Keeps the reference: the driver stays loaded while hooks point into it. */
static void *open_library(const char *soname, bool load) {
    static struct {
        const char *soname;
        void *_Atomic handle;
    } opened[] = {{.soname = "libcuda.so.1"}, {.soname = "libnvidia-ml.so.1"}};
    void *(*open)(const char *, int) = (void *(*)(const char *, int))cached(&real_dlopen, "dlopen");
    const unsigned which = ks_is_same(soname, opened[0].soname) ? 0 : 1;
    void *library = atomic_load_explicit(&opened[which].handle, memory_order_acquire);
    if (library == NULL && open != NULL) {
        library = open(soname, RTLD_LAZY | RTLD_NOLOAD);
        if (library == NULL && load)
            library = open(soname, RTLD_LAZY);
        atomic_store_explicit(&opened[which].handle, library, memory_order_release);
    }
    return library;
}

void *ks_library_symbol(const char *soname, const char *name, bool load) {
    void *(*symbol)(void *, const char *) = (void *(*)(void *, const char *))ks_real_dlsym();
    char *(*error)(void) = (char *(*)(void))cached(&real_dlerror, "dlerror");
    if (symbol == NULL || error == NULL)
        return NULL;
    void *library = open_library(soname, load);
    void *address = library != NULL ? symbol(library, name) : NULL;
    if (address == NULL)
        error(); /* the application must not see this failure in its own dlerror */
    return address;
}

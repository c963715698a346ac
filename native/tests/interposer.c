/*
 * An object that LD_PRELOAD puts before the device library: programs call its dlsym.
 *
 * It looks names up in the object's own table, so nothing that is loaded after it knows of that.
 * With INTERPOSED=NAME[,NAME…] it does so for these functions of the driver alone, and leaves the
 * others to the library.
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libkubeshare-vgpu"

static uintptr_t dynamic(const struct link_map *object, ElfW(Sxword) tag) {
    const ElfW(Dyn) *entry = object->l_ld;
    while (entry->d_tag != DT_NULL && entry->d_tag != tag)
        entry++;
    return entry->d_tag == tag ? entry->d_un.d_val : 0;
}

/* What an object defines; the table of names lies behind that of symbols. */
static void *look_up(const struct link_map *object, const char *name) {
    const uintptr_t symbols = dynamic(object, DT_SYMTAB);
    const uintptr_t names = dynamic(object, DT_STRTAB);
    const uintptr_t size = dynamic(object, DT_STRSZ);
    for (uintptr_t at = symbols; at + sizeof(ElfW(Sym)) <= names; at += sizeof(ElfW(Sym))) {
        const ElfW(Sym) *symbol = (const void *)at;
        if (symbol->st_shndx != SHN_UNDEF && symbol->st_value != 0 && symbol->st_name < size &&
            strcmp((const char *)names + symbol->st_name, name) == 0)
            return (void *)(object->l_addr + symbol->st_value);
    }
    return NULL;
}

static bool is_chosen(const char *name) {
    const char *chosen = getenv("INTERPOSED");
    if (chosen == NULL)
        return true;
    const char *found = strstr(chosen, name);
    const size_t length = strlen(name);
    return found != NULL && (found[length] == ',' || found[length] == '\0');
}

static const struct link_map *device_library(void) {
    const struct link_map *object = _r_debug.r_map;
    while (object != NULL && strstr(object->l_name, LIBRARY) == NULL)
        object = object->l_next;
    return object;
}

__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name) {
    void *(*next)(void *, const char *) = NULL;
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT || !is_chosen(name))
        *(void **)&next = look_up(device_library(), "dlsym");
    return next != NULL ? next(handle, name) : look_up(handle, name); /* a handle is an object */
}

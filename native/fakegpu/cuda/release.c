/*
 * The age of the driver: an older one lacks the names that newer ones brought.
 *
 * The library exports every name. Before anybody can ask the loader for one, the symbols that the
 * profile's driver does not have yet are made undefined in this process's own copy of the table, so
 * dlsym does not find them. A program that is linked to such a name finds it all the same.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../engine/release.h"
#include "driver.h"
#include "names.h"

int cuda_version = CUDA_VERSION;

static void hide(void *function) {
    Dl_info info;
    ElfW(Sym) *symbol = NULL;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (dladdr1(function, &info, (void **)&symbol, RTLD_DL_SYMENT) == 0 || symbol == NULL)
        return;
    const uintptr_t first = (uintptr_t)symbol & ~(page - 1);
    const size_t bytes = (uintptr_t)(symbol + 1) - first;
    if (mprotect((void *)first, bytes, PROT_READ | PROT_WRITE) != 0)
        return;
    symbol->st_shndx = SHN_UNDEF;
    symbol->st_value = 0;
    mprotect((void *)first, bytes, PROT_READ);
}

/* A profile that cannot be read is an error of cuInit's. */
__attribute__((constructor)) static void hide_what_is_newer(void) {
    Dl_info here;
    char error[512];
    static struct profile profile;
    const char *library = dladdr(&cuda_version, &here) != 0 ? here.dli_fname : "";
    if (!profile_choose(&profile, library, error, sizeof error) ||
        profile.driver_version == NEWEST_DRIVER)
        return;
    cuda_version = release_cuda(profile.driver_version);
    for_each_newer_name(cuda_version, hide);
}

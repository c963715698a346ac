/*
 * The ways to ask for a function by name: dlsym, dlvsym, cuGetProcAddress.
 *
 * glibc's dlsym looks at its return address: RTLD_NEXT and RTLD_DEFAULT mean
 * something else to every caller. An ordinary call from here would make this
 * library the caller (and RTLD_NEXT recurse for ever), so the two entries are
 * written in assembler: they ask where to go, put every register back, and
 * jump there with the caller's own return address still on the stack. Only for
 * the names in our table the jump goes to a function of ours.
 */
#include "hooks.h"
#include "loader.h"
#include "system.h"
#include "text.h"

#include <dlfcn.h>
#include <stdbool.h>

#ifndef __x86_64__
#error "the entries of dlsym and dlvsym are written for x86-64"
#endif

__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "endbr64\n"
        "pushq %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "pushq %rsi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "subq $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "call ks_route_dlsym\n"
        "addq $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "popq %rsi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "popq %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "jmpq *%rax\n"
        ".cfi_endproc\n"
        ".size dlsym, .-dlsym\n"
        ".globl dlvsym\n"
        ".type dlvsym, @function\n"
        "dlvsym:\n"
        ".cfi_startproc\n"
        "endbr64\n"
        "pushq %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "pushq %rsi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "pushq %rdx\n"
        ".cfi_adjust_cfa_offset 8\n"
        "call ks_route_dlvsym\n"
        "popq %rdx\n"
        ".cfi_adjust_cfa_offset -8\n"
        "popq %rsi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "popq %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "jmpq *%rax\n"
        ".cfi_endproc\n"
        ".size dlvsym, .-dlvsym\n");

typedef void *dlsym_function(void *handle, const char *name);
typedef void *dlvsym_function(void *handle, const char *name, const char *version);

static void *find_nothing(void) {
    return NULL;
}

/* The exported entries, also where the application's own dlsym comes first. */
static void *swap(const char *name, void *address) {
    if (address == NULL)
        return NULL;
    if (address == ks_real_dlsym())
        return (void *)dlsym;
    if (address == ks_real_dlvsym())
        return (void *)dlvsym;
    return ks_swap_exported(name, address);
}

/* Who looks in all that is loaded finds our export first. What would be there without us is the
 * next definition: none, and the error that belongs to it, where no driver is loaded. */
static void *dlsym_and_swap(void *handle, const char *name) {
    dlsym_function *real = (dlsym_function *)ks_real_dlsym();
    void *address = real(handle, name);
    if (ks_is_ours(name, address))
        address = real(RTLD_NEXT, name);
    return swap(name, address);
}

static void *dlvsym_and_swap(void *handle, const char *name, const char *version) {
    return swap(name, ((dlvsym_function *)ks_real_dlvsym())(handle, name, version));
}

/* Whoever asks for the next definition stands between this library and the
 * driver, and is called by us: with our own entry it would call itself. */
static bool is_ours(const void *handle, const char *name) {
    if (handle == RTLD_NEXT || name == NULL)
        return false;
    return ks_is_same(name, "dlsym") || ks_is_same(name, "dlvsym") || ks_is_hooked(name);
}

__attribute__((used, visibility("hidden"))) void *ks_route_dlsym(void *handle, const char *name);
__attribute__((used, visibility("hidden"))) void *ks_route_dlvsym(void *handle, const char *name);

void *ks_route_dlsym(void *handle, const char *name) {
    void *real = ks_real_dlsym();
    if (real == NULL)
        return (void *)find_nothing;
    return is_ours(handle, name) ? (void *)dlsym_and_swap : real;
}

void *ks_route_dlvsym(void *handle, const char *name) {
    void *real = ks_real_dlvsym();
    if (real == NULL)
        return (void *)find_nothing;
    return is_ours(handle, name) ? (void *)dlvsym_and_swap : real;
}

int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    const CUresult result = KS_REAL(cuGetProcAddress)(symbol, function, version, flags);
    if (result == CUDA_SUCCESS && symbol != NULL && function != NULL && *function != NULL)
        *function = ks_swap_versioned(symbol, version, flags, *function);
    return result;
}

int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                        int *status) {
    const CUresult result = KS_REAL(cuGetProcAddress_v2)(symbol, function, version, flags, status);
    if (result == CUDA_SUCCESS && symbol != NULL && function != NULL && *function != NULL)
        *function = ks_swap_versioned(symbol, version, flags, *function);
    return result;
}

/* What the CUDA runtime does through such a table is not hooked: who looks for a way past the
 * library wants to know which were asked for. */
int cuGetExportTable(const void **table, const CUuuid *id) {
    const CUresult result = KS_REAL(cuGetExportTable)(table, id);
    if (id != NULL)
        ks_debug("export table %02x%02x%02x%02x-...: result %d", id->bytes[0], id->bytes[1],
                 id->bytes[2], id->bytes[3], result);
    return result;
}

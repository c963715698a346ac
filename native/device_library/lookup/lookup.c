/*
 * dlsym and dlvsym: programs that ask the loader for a function by name.
 *
 * glibc's dlsym uses its return address: RTLD_NEXT and RTLD_DEFAULT depend on
 * the caller. An ordinary call from here would make this library the caller
 * (and RTLD_NEXT recurse forever), so the two entries are written in assembler:
 * they ask where to go, restore every register, and jump there with the
 * caller's return address still on the stack. Only for names in the table of
 * hooks the target is a function of this library; what RTLD_NEXT means there
 * follows from the object that contains the return address.
 */
#include "lookup/hooks.h"
#include "lookup/loader.h"
#include "lookup/text.h"
#include "system.h"

#include <dlfcn.h>
#include <stdbool.h>

#if defined(__x86_64__)

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
        "movq 24(%rsp), %rdx\n"
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
        "movq 24(%rsp), %rdx\n"
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

#elif defined(__aarch64__)

/* `keep` and `restore` are for a third argument. Where to go is in a register through which a jump
 * may enter a function under branch target identification. */
#define ENTRY(name, keep, restore)                                                                 \
    ".globl " name "\n"                                                                            \
    ".type " name ", %function\n" name ":\n"                                                       \
    ".cfi_startproc\n"                                                                             \
    "hint #34\n" /* bti c */                                                                       \
    "stp x29, x30, [sp, #-48]!\n"                                                                  \
    ".cfi_def_cfa_offset 48\n"                                                                     \
    ".cfi_offset x29, -48\n"                                                                       \
    ".cfi_offset x30, -40\n"                                                                       \
    "mov x29, sp\n"                                                                                \
    "stp x0, x1, [sp, #16]\n" keep "mov x2, x30\n"                                                 \
    "bl ks_route_" name "\n"                                                                       \
    "mov x16, x0\n" restore "ldp x0, x1, [sp, #16]\n"                                              \
    "ldp x29, x30, [sp], #48\n"                                                                    \
    ".cfi_def_cfa_offset 0\n"                                                                      \
    ".cfi_restore x29\n"                                                                           \
    ".cfi_restore x30\n"                                                                           \
    "br x16\n"                                                                                     \
    ".cfi_endproc\n"                                                                               \
    ".size " name ", .-" name "\n"

__asm__(".text\n" ENTRY("dlsym", "", "")
            ENTRY("dlvsym", "str x2, [sp, #32]\n", "ldr x2, [sp, #32]\n"));

#else
#error "the entries of dlsym and dlvsym are written for x86-64 and aarch64"
#endif

typedef void *dlsym_function(void *handle, const char *name);
typedef void *dlvsym_function(void *handle, const char *name, const char *version);

static void *find_nothing(void) {
    return NULL;
}

/* Whose function it is by its name, the driver's or NVML's; NULL: neither's. */
static const char *soname_of(const char *name) {
    if (ks_begins(name, "cu") && name[2] >= 'A' && name[2] <= 'Z')
        return "libcuda.so.1";
    if (ks_begins(name, "nvml") && name[4] >= 'A' && name[4] <= 'Z')
        return "libnvidia-ml.so.1";
    return NULL;
}

/* A program may load a second driver or NVML, by a path or under another name. Its functions would
 * not know the contexts and devices of the first one, and are not hooked: it gets those of the
 * first instead. */
static void *the_only_ones(const char *name, void *address) {
    const char *soname = soname_of(name);
    if (soname == NULL || address == ks_library_symbol(soname, name, false) ||
        !ks_is_in(soname, address))
        return address;
    return ks_library_symbol(soname, name, true);
}

/* Also swaps dlsym and dlvsym themselves for this library's. */
static void *swap(const char *name, void *address) {
    if (address == NULL)
        return NULL;
    if (address == ks_real_dlsym())
        return (void *)dlsym;
    if (address == ks_real_dlvsym())
        return (void *)dlvsym;
    void *only = the_only_ones(name, address);
    return only != NULL ? ks_swap_exported(name, only) : NULL;
}

/* Who asked last for RTLD_DEFAULT in this thread. */
static _Thread_local const void *caller_of_default __attribute__((tls_model("initial-exec")));

/* A search through everything that is loaded finds this library's export first. Without the library
 * it would find the next definition: that of what the caller depends on, or none, with its dlerror,
 * if no driver is loaded. */
static void *dlsym_and_swap(void *handle, const char *name) {
    dlsym_function *real = (dlsym_function *)ks_real_dlsym();
    void *address = real(handle, name);
    if (ks_is_ours(name, address))
        address = real(RTLD_NEXT, name);
    if (address == NULL && handle == RTLD_DEFAULT)
        address = ks_symbol_for(caller_of_default, name);
    if (ks_is_ours(name, address))
        address = real(RTLD_NEXT, name); /* the program's own object depends on all */
    return swap(name, address);
}

static void *dlvsym_and_swap(void *handle, const char *name, const char *version) {
    return swap(name, ((dlvsym_function *)ks_real_dlvsym())(handle, name, version));
}

static void *swapped(void *handle, const char *name) {
    (void)handle;
    return ks_hook_of(name);
}

static void *swapped_version(void *handle, const char *name, const char *version) {
    (void)version;
    return swapped(handle, name);
}

/* A caller that asks for the next definition wraps this library's function or the driver's. For the
 * driver's it gets the hook, which calls the driver and never the caller. For dlsym itself it gets
 * the real next one: the hook may call the caller's, and the two would recurse forever. */
static bool is_next_the_drivers(const char *name, const void *caller) {
    void *next = ks_next_symbol(name, caller);
    return next != NULL && swap(name, next) != next;
}

static bool is_ours(const char *name) {
    return ks_is_same(name, "dlsym") || ks_is_same(name, "dlvsym") || ks_is_hooked(name) ||
           soname_of(name) != NULL;
}

/* Returns the real function, one that calls it and swaps, or one that only swaps. */
static void *route(void *const ways[3], const void *handle, const char *name, const void *caller) {
    if (ways[0] == NULL)
        return (void *)find_nothing;
    if (name == NULL || !is_ours(name))
        return ways[0];
    if (handle != RTLD_NEXT)
        return ways[1];
    return ks_is_hooked(name) && is_next_the_drivers(name, caller) ? ways[2] : ways[0];
}

__attribute__((used, visibility("hidden"))) void *ks_route_dlsym(void *handle, const char *name,
                                                                 const void *caller);
__attribute__((used, visibility("hidden"))) void *ks_route_dlvsym(void *handle, const char *name,
                                                                  const void *caller);

void *ks_route_dlsym(void *handle, const char *name, const void *caller) {
    void *const ways[] = {ks_real_dlsym(), (void *)dlsym_and_swap, (void *)swapped};
    if (handle == RTLD_DEFAULT)
        caller_of_default = caller;
    return route(ways, handle, name, caller);
}

void *ks_route_dlvsym(void *handle, const char *name, const void *caller) {
    void *const ways[] = {ks_real_dlvsym(), (void *)dlvsym_and_swap, (void *)swapped_version};
    return route(ways, handle, name, caller);
}

/*
 * Every way to hold memory of a GPU, by name: `hold FORM BYTES` and `drop INDEX`.
 *
 * A form takes at least as many bytes as it is asked for, where it takes any.
 */
#include "probe.h"
#include "probe_forms.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST_HELD 64

static struct held all_held[MOST_HELD];

/* ---- at once ----------------------------------------------------- */

static int hold_linear(struct held *held) {
    return driver.alloc(&held->pointer, held->bytes);
}

static int hold_pitched(struct held *held) {
    size_t pitch;
    return driver.alloc_pitch(&held->pointer, &pitch, held->bytes / 16, 16, 4);
}

static int hold_managed(struct held *held) {
    return driver.alloc_managed(&held->pointer, held->bytes, 1);
}

static int drop_linear(struct held *held) {
    return driver.free(held->pointer);
}

/* A pool gives back what it does not use when a thread has waited for the GPU. */
static int drop_at_once(struct held *held) {
    const int result = driver.free(held->pointer);
    return first(result, driver.synchronize());
}

static int drop_in_stream(struct held *held) {
    const int result = driver.free_async(held->pointer, NULL);
    return first(result, driver.synchronize());
}

static int hold_host(struct held *held) {
    return driver.host_alloc(&held->host, held->bytes, 0);
}

static int drop_host(struct held *held) {
    return driver.host_free(held->host);
}

static int hold_registered(struct held *held) {
    held->host = malloc(held->bytes);
    return driver.host_register(held->host, held->bytes, 0);
}

static int drop_registered(struct held *held) {
    const int result = driver.host_unregister(held->host);
    free(held->host);
    return result;
}

/* ---- in the order of a stream ------------------------------------ */

static int hold_in_stream(struct held *held) {
    return driver.alloc_async(&held->pointer, held->bytes, NULL);
}

static int make_pool(struct held *held, CUmemLocationType type) {
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location.type = type};
    return driver.pool_create(&held->pool, &properties);
}

static int hold_in_pool(struct held *held) {
    const int result = make_pool(held, CU_MEM_LOCATION_TYPE_DEVICE);
    return first(
        result,
        result != 0 ? 0 : driver.alloc_from_pool(&held->pointer, held->bytes, held->pool, NULL));
}

/* From a pool that the first GPU is given; it has its own again when that pool is destroyed. */
static int hold_in_chosen_pool(struct held *held) {
    int result = make_pool(held, CU_MEM_LOCATION_TYPE_DEVICE);
    result = first(result, result != 0 ? 0 : driver.pool_choose(0, held->pool));
    return first(result, result != 0 ? 0 : hold_in_stream(held));
}

static int drop_in_pool(struct held *held) {
    const int result = held->pointer != 0 ? drop_in_stream(held) : 0;
    return first(result, driver.pool_destroy(held->pool));
}

static int drop_after_pool(struct held *held) {
    const int result = driver.pool_destroy(held->pool);
    return first(result, held->pointer != 0 ? drop_in_stream(held) : 0);
}

/* In a stream of the first GPU, whichever is current. */
static int hold_in_stream_of_first(struct held *held) {
    CUcontext before, context;
    int result = driver.get_current(&before);
    result = first(result, driver.primary_retain(&context, 0));
    result = first(result, driver.set_current(context));
    result = first(result, driver.stream_create(&held->stream, CU_STREAM_NON_BLOCKING));
    result = first(result, driver.set_current(before));
    return first(result, driver.alloc_async(&held->pointer, held->bytes, held->stream));
}

static int drop_in_stream_of_first(struct held *held) {
    int result = driver.free_async(held->pointer, held->stream);
    result = first(result, driver.stream_synchronize(held->stream));
    result = first(result, driver.stream_destroy(held->stream));
    return first(result, driver.primary_release(0));
}

/* ---- physical memory --------------------------------------------- */

static int make_physical(struct held *held, CUmemLocationType type) {
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location.type = type};
    return driver.physical_create(&held->physical, held->bytes, &properties, 0);
}

int hold_physical(struct held *held) {
    return make_physical(held, CU_MEM_LOCATION_TYPE_DEVICE);
}

static int hold_physical_of_host(struct held *held) {
    return make_physical(held, CU_MEM_LOCATION_TYPE_HOST);
}

int drop_physical(struct held *held) {
    return driver.physical_release(held->physical);
}

/* Only the mapping keeps it. */
static int hold_mapped(struct held *held) {
    int result = hold_physical(held);
    if (result != 0)
        return result;
    result = driver.address_reserve(&held->pointer, held->bytes, 0, 0, 0);
    result = first(result, driver.map(held->pointer, held->bytes, 0, held->physical, 0));
    return first(result, driver.physical_release(held->physical));
}

static int drop_mapped(struct held *held) {
    const int result = driver.unmap(held->pointer, held->bytes);
    return first(result, driver.address_free(held->pointer, held->bytes));
}

/* Only a handle that was found by the address keeps it. */
static int hold_retained(struct held *held) {
    int result = hold_mapped(held);
    if (result != 0)
        return result;
    result = driver.physical_retain(&held->physical, (void *)held->pointer);
    return first(result, drop_mapped(held));
}

/* Two pieces side by side, which one call unmaps. */
static int hold_side_by_side(struct held *held) {
    const size_t half = held->bytes / 2;
    CUmemGenericAllocationHandle left = 0, right = 0;
    struct held piece = {.bytes = half};
    int result = hold_physical(&piece);
    left = piece.physical;
    if (result == 0 && (result = hold_physical(&piece)) != 0)
        driver.physical_release(left);
    if (result != 0)
        return result;
    right = piece.physical;
    result = driver.address_reserve(&held->pointer, held->bytes, 0, 0, 0);
    result = first(result, driver.map(held->pointer, half, 0, left, 0));
    result = first(result, driver.map(held->pointer + half, half, 0, right, 0));
    result = first(result, driver.physical_release(left));
    return first(result, driver.physical_release(right));
}

/* ---- memory that comes from elsewhere ---------------------------- */

static int hold_external(struct held *held) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = held->bytes};
    description.handle.fd = (int)syscall(SYS_memfd_create, "external", 1 /* close on exec */);
    if (ftruncate(description.handle.fd, (off_t)held->bytes) != 0)
        return -1;
    const int result = driver.external_import(&held->external, &description);
    if (result != 0)
        close(description.handle.fd);
    return result;
}

static int drop_external(struct held *held) {
    return driver.external_destroy(held->external);
}

static int hold_exportable(struct held *held, int device) {
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .requestedHandleTypes =
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            .location.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                            .location.id = device};
    return driver.physical_create(&held->physical, held->bytes, &properties, 0);
}

static int hold_physical_for_others(struct held *held) {
    return hold_exportable(held, 0);
}

static int hold_physical_of_second(struct held *held) {
    return hold_exportable(held, 1);
}

/* ---- commands ---------------------------------------------------- */

static const struct form forms[] = {
    {"linear",                        hold_linear,              drop_linear            },
    {"linear-in-stream",              hold_linear,              drop_in_stream         },
    {"pitched",                       hold_pitched,             drop_linear            },
    {"managed",                       hold_managed,             drop_linear            },
    {"host",                          hold_host,                drop_host              },
    {"host-registered",               hold_registered,          drop_registered        },
    {"stream",                        hold_in_stream,           drop_in_stream         },
    {"stream-at-once",                hold_in_stream,           drop_at_once           },
    {"stream-of-first",               hold_in_stream_of_first,  drop_in_stream_of_first},
    {"pool",                          hold_in_pool,             drop_in_pool           },
    {"pool-destroyed",                hold_in_pool,             drop_after_pool        },
    {"pool-chosen",                   hold_in_chosen_pool,      drop_in_pool           },
    {"physical",                      hold_physical,            drop_physical          },
    {"physical-of-host",              hold_physical_of_host,    drop_physical          },
    {"physical-for-others",           hold_physical_for_others, drop_physical          },
    {"physical-for-others-of-second", hold_physical_of_second,  drop_physical          },
    {"mapped",                        hold_mapped,              drop_mapped            },
    {"retained",                      hold_retained,            drop_physical          },
    {"side-by-side",                  hold_side_by_side,        drop_mapped            },
    {"external",                      hold_external,            drop_external          },
    {NULL,                            NULL,                     NULL                   },
};

static const struct form *find_form(const struct form *list, const char *name) {
    while (list->name != NULL && strcmp(list->name, name) != 0)
        list++;
    return list->name != NULL ? list : NULL;
}

static const struct form *form_named(const char *name) {
    const struct form *form = find_form(forms, name);
    if (form == NULL)
        form = find_form(array_forms, name);
    return form != NULL ? form : find_form(graph_forms, name);
}

/* A free place, or MOST_HELD. */
static int free_place(void) {
    int index = 0;
    while (index < MOST_HELD && all_held[index].form != NULL)
        index++;
    return index;
}

static int keep_held(int result, const struct held *held, int index) {
    if (result == 0)
        all_held[index] = *held;
    printf("{\"result\": %d, \"index\": %d}\n", result, index);
    return 0;
}

/* hold FORM BYTES: answers with the index to drop it by */
static int do_hold(char **words) {
    const struct form *form = form_named(words[1]);
    const int index = free_place();
    if (form == NULL || index == MOST_HELD)
        return 1;
    struct held held = {.form = form, .bytes = strtoull(words[2], NULL, 10)};
    const int result = form->hold(&held);
    if (result != 0 && held.pool != NULL)
        driver.pool_destroy(held.pool);
    return keep_held(result, &held, index);
}

/* drop INDEX */
static int do_drop(char **words) {
    struct held *held = &all_held[atoi(words[1])];
    const int result = held->form->drop(held);
    held->form = NULL;
    return answer(result);
}

/* keep BYTES: what the device's pool keeps while it is unused */
static int do_keep(char **words) {
    CUmemoryPool pool = NULL;
    cuuint64_t bytes = strtoull(words[1], NULL, 10);
    const int result = driver.pool_of_device(&pool, 0);
    return answer(first(result, driver.pool_set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes)));
}

/* trim BYTES: the device's pool, to no less than that */
static int do_trim(char **words) {
    CUmemoryPool pool = NULL;
    const int result = driver.pool_of_device(&pool, 0);
    return answer(first(result, driver.pool_trim(pool, strtoull(words[1], NULL, 10))));
}

/* limit WHICH VALUE: of the current context */
static int do_limit(char **words) {
    return answer(driver.set_limit((CUlimit)atoi(words[1]), strtoull(words[2], NULL, 10)));
}

/* share INDEX: for another process; answers with a file of this one, or with an IPC handle */
static int do_share(char **words) {
    const struct held *held = &all_held[atoi(words[1])];
    CUipcMemHandle handle;
    int file = -1;
    const int result = held->physical != 0
                           ? driver.physical_export(&file, held->physical,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)
                           : driver.ipc_get(&handle, held->pointer);
    printf("{\"result\": %d, \"shared\": \"", result);
    if (file >= 0)
        printf("/proc/%d/fd/%d", (int)getpid(), file);
    for (size_t i = 0; file < 0 && result == 0 && i < sizeof handle; i++)
        printf("%02x", (unsigned char)handle.reserved[i]);
    puts("\"}");
    return 0;
}

static int bring_file(const char *path) {
    struct held held = {.form = form_named("physical-for-others")};
    const int index = free_place();
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (index == MOST_HELD || file < 0)
        return 1;
    const int result = driver.physical_import(&held.physical, (void *)(intptr_t)file,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(file);
    return keep_held(result, &held, index);
}

/* bring FILE or HANDLE: what `share` answered; for a file with the index to drop it by */
static int do_bring(char **words) {
    CUipcMemHandle handle;
    CUdeviceptr pointer;
    if (*words[1] == '/')
        return bring_file(words[1]);
    for (size_t i = 0; i < sizeof handle; i++) {
        unsigned byte = 0;
        sscanf(words[1] + 2 * i, "%2x", &byte);
        handle.reserved[i] = (char)byte;
    }
    return answer(driver.ipc_open(&pointer, handle, 1));
}

const struct command memory_commands[] = {
    {"share", 1, do_share},
    {"bring", 1, do_bring},
    {"hold",  2, do_hold },
    {"drop",  1, do_drop },
    {"keep",  1, do_keep },
    {"trim",  1, do_trim },
    {"limit", 2, do_limit},
    {NULL,    0, NULL    },
};

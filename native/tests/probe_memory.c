/*
 * Every way to hold memory of a GPU, by name: `hold FORM BYTES` and `drop INDEX`.
 *
 * A form takes at least as many bytes as it is asked for, where it takes any.
 */
#include "paths.h"
#include "probe.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST_HELD 64

struct held {
    const struct form *form; /* NULL: this place is free */
    size_t bytes;
    CUdeviceptr pointer;
    void *host;
    CUmemoryPool pool;
    CUmemGenericAllocationHandle physical;
    CUarray array;
    CUmipmappedArray mipmap;
    CUexternalMemory external;
    CUgraph graph;
    CUgraphExec executable;
};

struct form {
    const char *name;
    int (*hold)(struct held *held);
    int (*drop)(struct held *held);
};

static struct held all_held[MOST_HELD];

/* The first code that is not success. */
static int first(int one, int other) {
    return one != 0 ? one : other;
}

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

/* A pool gives back what it does not use when somebody has waited for the GPU. */
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

static int drop_in_pool(struct held *held) {
    const int result = held->pointer != 0 ? drop_in_stream(held) : 0;
    return first(result, driver.pool_destroy(held->pool));
}

static int drop_after_pool(struct held *held) {
    const int result = driver.pool_destroy(held->pool);
    return first(result, held->pointer != 0 ? drop_in_stream(held) : 0);
}

/* ---- physical memory --------------------------------------------- */

static int make_physical(struct held *held, CUmemLocationType type) {
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location.type = type};
    return driver.physical_create(&held->physical, held->bytes, &properties, 0);
}

static int hold_physical(struct held *held) {
    return make_physical(held, CU_MEM_LOCATION_TYPE_DEVICE);
}

static int hold_physical_of_host(struct held *held) {
    return make_physical(held, CU_MEM_LOCATION_TYPE_HOST);
}

static int drop_physical(struct held *held) {
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

/* ---- arrays ------------------------------------------------------ */

static int make_array(struct held *held, size_t depth, unsigned flags) {
    const CUDA_ARRAY3D_DESCRIPTOR description = {.Width = 1024,
                                                 .Height = held->bytes /
                                                           (4096 * (depth != 0 ? depth : 1)),
                                                 .Depth = depth,
                                                 .Format = CU_AD_FORMAT_FLOAT,
                                                 .NumChannels = 1,
                                                 .Flags = flags};
    return driver.array_3d(&held->array, &description);
}

static int hold_array(struct held *held) {
    const CUDA_ARRAY_DESCRIPTOR description = {.Width = 1024,
                                               .Height = held->bytes / 4096,
                                               .Format = CU_AD_FORMAT_FLOAT,
                                               .NumChannels = 1};
    return driver.array(&held->array, &description);
}

static int hold_array_3d(struct held *held) {
    return make_array(held, 4, 0);
}

static int hold_layered_array(struct held *held) {
    return make_array(held, 4, CUDA_ARRAY3D_LAYERED);
}

static int hold_sparse_array(struct held *held) {
    return make_array(held, 0, CUDA_ARRAY3D_SPARSE);
}

static int hold_deferred_array(struct held *held) {
    return make_array(held, 0, CUDA_ARRAY3D_DEFERRED_MAPPING);
}

/* A format in blocks, of half a byte an element. */
static int hold_compressed_array(struct held *held) {
    const CUDA_ARRAY3D_DESCRIPTOR description = {.Width = 8192,
                                                 .Height = held->bytes / 4096,
                                                 .Format = CU_AD_FORMAT_BC1_UNORM,
                                                 .NumChannels = 4};
    return driver.array_3d(&held->array, &description);
}

static int drop_array(struct held *held) {
    return driver.array_destroy(held->array);
}

static int map_into_array(struct held *held, CUmemOperationType operation) {
    CUarrayMapInfo mapping = {
        .resourceType = CU_RESOURCE_TYPE_ARRAY,
        .resource.array = held->array,
        .subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL,
        .subresource.sparseLevel = {.extentWidth = 1024, .extentHeight = 512, .extentDepth = 1},
        .memOperationType = operation,
        .memHandleType = CU_MEM_HANDLE_TYPE_GENERIC,
        .deviceBitMask = 1
    };
    if (operation == CU_MEM_OPERATION_TYPE_MAP)
        mapping.memHandle.memHandle = held->physical;
    return driver.array_map(&mapping, 1, NULL);
}

/* Only the array keeps the memory. */
static int hold_tile(struct held *held) {
    int result = hold_physical(held);
    if (result != 0)
        return result;
    result = hold_sparse_array(held);
    result = first(result, map_into_array(held, CU_MEM_OPERATION_TYPE_MAP));
    return first(result, drop_physical(held));
}

static int drop_tile(struct held *held) {
    const int result = map_into_array(held, CU_MEM_OPERATION_TYPE_UNMAP);
    return first(result, drop_array(held));
}

static int hold_mipmapped_array(struct held *held) {
    const CUDA_ARRAY3D_DESCRIPTOR description = {.Width = 1024,
                                                 .Height = held->bytes / 4096,
                                                 .Format = CU_AD_FORMAT_FLOAT,
                                                 .NumChannels = 1};
    return driver.mipmap(&held->mipmap, &description, 4);
}

static int drop_mipmapped_array(struct held *held) {
    return driver.mipmap_destroy(held->mipmap);
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

static int hold_physical_for_others(struct held *held) {
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .requestedHandleTypes =
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    return driver.physical_create(&held->physical, held->bytes, &properties, 0);
}

/* ---- graphs ------------------------------------------------------ */

static int run_graph(struct held *held) {
    int result = driver.graph_instantiate(&held->executable, held->graph, 0);
    if (result != 0)
        return first(result, driver.graph_destroy(held->graph));
    result = driver.graph_launch(held->executable, NULL);
    if (result == 0)
        return driver.synchronize();
    driver.graph_exec_destroy(held->executable);
    driver.graph_destroy(held->graph);
    return result;
}

static int add_allocation(struct held *held, CUgraphNode *node) {
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location.type = CU_MEM_LOCATION_TYPE_DEVICE},
        .bytesize = held->bytes
    };
    const int result = driver.graph_allocate(node, held->graph, NULL, 0, &wanted);
    held->pointer = wanted.dptr;
    return result;
}

/* What it allocates outlives the launch. */
static int hold_graph(struct held *held) {
    CUgraphNode node;
    int result = driver.graph_create(&held->graph, 0);
    result = first(result, add_allocation(held, &node));
    return first(result, run_graph(held));
}

/* What it allocates it frees; the driver keeps the memory for the next launch. */
static int hold_graph_that_frees(struct held *held) {
    CUgraphNode node, last;
    int result = driver.graph_create(&held->graph, 0);
    result = first(result, add_allocation(held, &node));
    result = first(result, driver.graph_free(&last, held->graph, &node, 1, held->pointer));
    held->pointer = 0;
    return first(result, run_graph(held));
}

static int hold_captured(struct held *held) {
    CUstream stream;
    CUdeviceptr pointer;
    int result = driver.stream_create(&stream, CU_STREAM_NON_BLOCKING);
    result = first(result, driver.capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    result = first(result, driver.alloc_async(&pointer, held->bytes, stream));
    result = first(result, driver.free_async(pointer, stream));
    result = first(result, driver.capture_end(stream, &held->graph));
    result = first(result, driver.stream_destroy(stream));
    return first(result, run_graph(held));
}

static int drop_graph(struct held *held) {
    int result = held->pointer != 0 ? driver.free(held->pointer) : 0;
    result = first(result, driver.graph_exec_destroy(held->executable));
    result = first(result, driver.graph_destroy(held->graph));
    return first(result, driver.graph_trim(0));
}

/* ---- commands ---------------------------------------------------- */

static const struct form forms[] = {
    {"linear",              hold_linear,              drop_linear         },
    {"linear-in-stream",    hold_linear,              drop_in_stream      },
    {"pitched",             hold_pitched,             drop_linear         },
    {"managed",             hold_managed,             drop_linear         },
    {"host",                hold_host,                drop_host           },
    {"stream",              hold_in_stream,           drop_in_stream      },
    {"stream-at-once",      hold_in_stream,           drop_at_once        },
    {"pool",                hold_in_pool,             drop_in_pool        },
    {"pool-destroyed",      hold_in_pool,             drop_after_pool     },
    {"physical",            hold_physical,            drop_physical       },
    {"physical-of-host",    hold_physical_of_host,    drop_physical       },
    {"physical-for-others", hold_physical_for_others, drop_physical       },
    {"mapped",              hold_mapped,              drop_mapped         },
    {"retained",            hold_retained,            drop_physical       },
    {"side-by-side",        hold_side_by_side,        drop_mapped         },
    {"array",               hold_array,               drop_array          },
    {"array-3d",            hold_array_3d,            drop_array          },
    {"array-layered",       hold_layered_array,       drop_array          },
    {"array-sparse",        hold_sparse_array,        drop_array          },
    {"tile",                hold_tile,                drop_tile           },
    {"tile-of-array",       hold_tile,                drop_array          },
    {"array-deferred",      hold_deferred_array,      drop_array          },
    {"array-compressed",    hold_compressed_array,    drop_array          },
    {"mipmapped",           hold_mipmapped_array,     drop_mipmapped_array},
    {"external",            hold_external,            drop_external       },
    {"graph",               hold_graph,               drop_graph          },
    {"graph-that-frees",    hold_graph_that_frees,    drop_graph          },
    {"captured",            hold_captured,            drop_graph          },
};

static const struct form *form_named(const char *name) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(forms[i].name, name) == 0)
            return &forms[i];
    }
    return NULL;
}

/* hold FORM BYTES: answers with the index to drop it by */
static int do_hold(char **words) {
    const struct form *form = form_named(words[1]);
    int index = 0;
    while (index < MOST_HELD && all_held[index].form != NULL)
        index++;
    if (form == NULL || index == MOST_HELD)
        return 1;
    struct held held = {.form = form, .bytes = strtoull(words[2], NULL, 10)};
    const int result = form->hold(&held);
    if (result == 0)
        all_held[index] = held;
    else if (held.pool != NULL)
        driver.pool_destroy(held.pool);
    printf("{\"result\": %d, \"index\": %d}\n", result, index);
    return 0;
}

/* drop INDEX */
static int do_drop(char **words) {
    struct held *held = &all_held[atoi(words[1])];
    const int result = held->form->drop(held);
    held->form = NULL;
    return answer(result);
}

/* keep BYTES: what the device's pool keeps when nobody uses it */
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

/* bring FILE or HANDLE: what `share` answered in another process */
static int do_bring(char **words) {
    CUmemGenericAllocationHandle physical;
    CUipcMemHandle handle;
    CUdeviceptr pointer;
    if (*words[1] == '/') {
        const int file = open(words[1], O_RDWR | O_CLOEXEC);
        return answer(driver.physical_import(&physical, (void *)(intptr_t)file,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    }
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

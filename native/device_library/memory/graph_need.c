/*
 * The list of a graph's nodes is in mmap'ed memory: the allocator of the
 * application may be what is being captured.
 */
#include "memory/graph_need.h"

#include "lookup/driver_calls.h"
#include "memory/charge.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#define CHILDREN_DEEP 16 /* child graphs are followed so deep */

struct range {
    uint64_t start, end;
};

/* Grows by doubling its mapping; `items` is NULL while it is empty. */
struct list {
    struct range *items;
    size_t count, capacity;
};

static void *map(size_t bytes) {
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mapped != MAP_FAILED ? mapped : NULL;
}

static bool append(struct list *list, struct range range) {
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity != 0 ? list->capacity * 2 : 256;
        struct range *items = map(capacity * sizeof *items);
        if (items == NULL)
            return false;
        if (list->items != NULL) {
            memcpy(items, list->items, list->count * sizeof *items);
            munmap(list->items, list->capacity * sizeof *items);
        }
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = range;
    return true;
}

static void collect(struct list *list, CUgraph graph, CUdevice device, int depth);

static void collect_node(struct list *list, CUgraphNode node, CUdevice device, int depth) {
    struct ks_allocation_node allocation;
    CUgraph child;
    int type;
    if (KS_DRIVER(graph_node_type)(node, &type) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
        KS_DRIVER(graph_node_child)(node, &child) == CUDA_SUCCESS)
        collect(list, child, device, depth + 1);
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
        KS_DRIVER(graph_node_allocation)(node, &allocation) == CUDA_SUCCESS &&
        allocation.pool.location.id == device)
        append(list, (struct range){allocation.pointer,
                                    allocation.pointer + ks_round_up(allocation.bytes, 512)});
}

static void collect(struct list *list, CUgraph graph, CUdevice device, int depth) {
    size_t count = 0;
    if (depth > CHILDREN_DEEP || KS_DRIVER(graph_nodes)(graph, NULL, &count) != CUDA_SUCCESS ||
        count == 0)
        return;
    const size_t bytes = count * sizeof(CUgraphNode);
    CUgraphNode *nodes = map(bytes);
    if (nodes == NULL)
        return;
    if (KS_DRIVER(graph_nodes)(graph, nodes, &count) == CUDA_SUCCESS) {
        for (size_t i = 0; i < count; i++)
            collect_node(list, nodes[i], device, depth);
    }
    munmap(nodes, bytes);
}

/* Heapsort by start: libc's sort may allocate. */
static void sift(struct range *items, size_t root, size_t count) {
    for (size_t child; (child = root * 2 + 1) < count; root = child) {
        if (child + 1 < count && items[child].start < items[child + 1].start)
            child++;
        if (items[root].start >= items[child].start)
            return;
        const struct range moved = items[root];
        items[root] = items[child];
        items[child] = moved;
    }
}

static void sort(struct range *items, size_t count) {
    for (size_t root = count / 2; root-- > 0;)
        sift(items, root, count);
    for (size_t last = count; last-- > 1;) {
        const struct range moved = items[0];
        items[0] = items[last];
        items[last] = moved;
        sift(items, 0, last);
    }
}

uint64_t ks_graph_need(CUgraph graph, CUdevice device) {
    struct list list = {0};
    uint64_t bytes = 0, end = 0;
    collect(&list, graph, device, 0);
    sort(list.items, list.count);
    for (size_t i = 0; i < list.count; i++) {
        const struct range range = list.items[i];
        const uint64_t start = range.start > end ? range.start : end;
        if (range.end > start) {
            bytes += range.end - start;
            end = range.end;
        }
    }
    if (list.items != NULL)
        munmap(list.items, list.capacity * sizeof *list.items);
    return ks_round_up(bytes, KS_PAGE_BYTES);
}

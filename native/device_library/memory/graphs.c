/*
 * The memory that graphs allocate while they run. A node that allocates has its
 * addresses from its creation, and nodes that never hold memory at the same time
 * share them: so a graph needs the addresses of all such nodes, each counted once.
 * The driver finds memory for them when the graph is first uploaded or launched,
 * or again after a trim, and keeps it. The session is charged for the need before
 * that, and by the driver's own figure for the device afterwards.
 */
#include "memory/graphs.h"

#include "account.h"
#include "context.h"
#include "gate/capture.h"
#include "gate/gate.h"
#include "lookup/driver_calls.h"
#include "lookup/real.h"
#include "memory/allocations.h"
#include "memory/charge.h"
#include "memory/graph_need.h"
#include "memory/reserve.h"
#include "session.h"

struct cell {
    struct ks_reserve reserve; /* first, so that its address is the cell's */
    atomic_int device;         /* ordinal + 1; 0: no graph of this cell allocates */
    atomic_uint trims;         /* a graph that got its memory before the last one needs it again */
};

static struct cell cells[KS_CELLS_MAX];
static atomic_uint graphs; /* executable graphs that allocate */

static bool ask(const struct ks_reserve *reserve, uint64_t *bytes) {
    const CUdevice device = atomic_load(&((const struct cell *)reserve)->device) - 1;
    return KS_DRIVER(graph_memory_get)(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, bytes) ==
           CUDA_SUCCESS;
}

/* One entry for each cell: executable graphs are further apart than there are cells. */
static uint64_t handle_of(CUgraphExec executable, unsigned cell) {
    return (uint64_t)(uintptr_t)executable + cell;
}

static void trim(struct cell *cell) {
    KS_DRIVER(graph_memory_trim)(atomic_load(&cell->device) - 1);
    atomic_fetch_add(&cell->trims, 1);
}

void ks_graphs_visit(unsigned index, bool trimmed) {
    struct cell *cell = &cells[index];
    if (atomic_load_explicit(&cell->device, memory_order_acquire) == 0)
        return;
    if (trimmed)
        trim(cell);
    ks_reserve_look(&cell->reserve);
}

void ks_graphs_forget(void) {
    atomic_store(&graphs, 0);
    for (unsigned cell = 0; cell < KS_CELLS_MAX; cell++)
        cells[cell] = (struct cell){0};
}

/* ---- executable graphs ------------------------------------------------------------------- */

static void start(unsigned index, CUdevice device) {
    struct cell *cell = &cells[index];
    if (atomic_load(&cell->device) != 0)
        return;
    cell->reserve.cell = index;
    cell->reserve.ask = ask;
    atomic_store_explicit(&cell->device, device + 1, memory_order_release);
}

static void forget(CUgraphExec executable) {
    struct ks_allocation graph;
    for (unsigned cell = 0; atomic_load(&graphs) != 0 && cell < ks_session_cells(); cell++) {
        if (ks_allocations_take(KS_GRAPH, handle_of(executable, cell), &graph)) {
            atomic_fetch_sub(&graphs, 1);
            ks_reserve_look(&cells[cell].reserve);
        }
    }
}

/* ---- running them -------------------------------------------------------------------------- */

/* Sets `begun` to the cells on which the graph is about to get its memory: bit n for cell n. */
static CUresult begin(CUgraphExec executable, unsigned *begun) {
    CUresult result = CUDA_SUCCESS;
    struct ks_allocation graph;
    *begun = 0;
    if (atomic_load_explicit(&graphs, memory_order_relaxed) == 0)
        return CUDA_SUCCESS;
    for (unsigned cell = 0; cell < ks_session_cells() && result == CUDA_SUCCESS; cell++) {
        if (!ks_allocations_find(KS_GRAPH, handle_of(executable, cell), &graph))
            continue;
        const bool has_it = graph.uses == atomic_load(&cells[cell].trims) + 1;
        result = ks_reserve_begin(&cells[cell].reserve, has_it ? 0 : graph.bytes);
        if (result == CUDA_SUCCESS)
            *begun |= 1u << cell;
    }
    return result;
}

/* A graph keeps what it has taken beyond its need: it runs already. */
static void end(CUgraphExec executable, unsigned begun, CUresult result) {
    for (unsigned cell = 0; begun != 0; cell++, begun >>= 1) {
        if ((begun & 1) == 0)
            continue;
        ks_reserve_end(&cells[cell].reserve, 0);
        if (result == CUDA_SUCCESS)
            ks_allocations_mark(KS_GRAPH, handle_of(executable, cell),
                                atomic_load(&cells[cell].trims) + 1);
    }
}

static CUresult run(CUresult (*real)(CUgraphExec, CUstream), CUgraphExec executable,
                    CUstream stream) {
    unsigned begun;
    CUresult result = begin(executable, &begun);
    if (result == CUDA_SUCCESS)
        result = real(executable, stream);
    end(executable, begun, result);
    return result;
}

/* A launch waits for the session's turn first. */
static CUresult launch(CUresult (*real)(CUgraphExec, CUstream), CUgraphExec executable,
                       CUstream given, CUstream stream) {
    CUresult result = ks_enter(stream);
    if (result != CUDA_SUCCESS)
        return result;
    result = run(real, executable, given);
    ks_leave();
    return result;
}

int cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    return launch(KS_REAL(cuGraphLaunch), executable, stream, stream);
}

int cuGraphLaunch_ptsz(CUgraphExec executable, CUstream stream) {
    return launch(KS_REAL(cuGraphLaunch_ptsz), executable, stream, KS_STREAM_PER_THREAD(stream));
}

int cuGraphUpload(CUgraphExec executable, CUstream stream) {
    return run(KS_REAL(cuGraphUpload), executable, stream);
}

int cuGraphUpload_ptsz(CUgraphExec executable, CUstream stream) {
    return run(KS_REAL(cuGraphUpload_ptsz), executable, stream);
}

/* ---- making and ending them -------------------------------------------------------------- */

/* What a graph will need on each cell, before it is instantiated. */
struct plan {
    uint64_t bytes[KS_CELLS_MAX];
    unsigned begun; /* cells on which it gets its memory at once */
};

static CUresult plan_cell(struct plan *plan, CUgraph graph, CUdevice device, bool upload) {
    const uint64_t bytes = ks_graph_need(graph, device);
    const int cell = ks_cell_of_device(device);
    if (bytes == 0)
        return CUDA_SUCCESS;
    if (cell == KS_NO_CELL)
        return CUDA_ERROR_NOT_PERMITTED;
    start((unsigned)cell, device);
    plan->bytes[cell] = bytes;
    if (!upload)
        return CUDA_SUCCESS;
    const CUresult result = ks_reserve_begin(&cells[cell].reserve, bytes);
    if (result == CUDA_SUCCESS)
        plan->begun |= 1u << cell;
    return result;
}

static CUresult make_plan(struct plan *plan, CUgraph graph, unsigned long long flags) {
    CUdevice devices = 0;
    CUresult result = CUDA_SUCCESS;
    *plan = (struct plan){.begun = 0};
    if (!ks_session_is_open())
        return CUDA_SUCCESS;
    KS_DRIVER(device_get_count)(&devices);
    for (CUdevice device = 0; device < devices && result == CUDA_SUCCESS; device++)
        result = plan_cell(plan, graph, device, (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0);
    return result;
}

static bool remember(CUgraphExec executable, const struct plan *plan) {
    for (unsigned cell = 0; cell < KS_CELLS_MAX; cell++) {
        const struct ks_allocation graph = {.kind = KS_GRAPH,
                                            .handle = handle_of(executable, cell),
                                            .bytes = plan->bytes[cell],
                                            .cell = (uint16_t)cell};
        if (graph.bytes == 0)
            continue;
        if (!ks_allocations_add(&graph))
            return false;
        atomic_fetch_add(&graphs, 1);
    }
    return true;
}

static CUresult made(const struct plan *plan, const CUgraphExec *executable, CUresult result) {
    if (result == CUDA_SUCCESS && !remember(*executable, plan)) {
        forget(*executable);
        KS_DRIVER(graph_exec_destroy)(*executable);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    end(NULL, plan->begun, result); /* its first launch finds out whether it has its memory */
    return result;
}

#define KS_INSTANTIATE(flags, call)                                                                \
    struct plan plan;                                                                              \
    CUresult result = make_plan(&plan, graph, flags);                                              \
    if (result == CUDA_SUCCESS)                                                                    \
        result = (call);                                                                           \
    return made(&plan, executable, result)

int cuGraphInstantiate(CUgraphExec *executable, CUgraph graph, CUgraphNode *node, char *log,
                       size_t log_bytes) {
    KS_INSTANTIATE(0, KS_REAL(cuGraphInstantiate)(executable, graph, node, log, log_bytes));
}

int cuGraphInstantiate_v2(CUgraphExec *executable, CUgraph graph, CUgraphNode *node, char *log,
                          size_t log_bytes) {
    KS_INSTANTIATE(0, KS_REAL(cuGraphInstantiate_v2)(executable, graph, node, log, log_bytes));
}

int cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags) {
    KS_INSTANTIATE(flags, KS_REAL(cuGraphInstantiateWithFlags)(executable, graph, flags));
}

/* Its parameters begin with the flags. */
int cuGraphInstantiateWithParams(CUgraphExec *executable, CUgraph graph, void *parameters) {
    KS_INSTANTIATE(parameters != NULL ? *(const uint64_t *)parameters : 0,
                   KS_REAL(cuGraphInstantiateWithParams)(executable, graph, parameters));
}

int cuGraphInstantiateWithParams_ptsz(CUgraphExec *executable, CUgraph graph, void *parameters) {
    KS_INSTANTIATE(parameters != NULL ? *(const uint64_t *)parameters : 0,
                   KS_REAL(cuGraphInstantiateWithParams_ptsz)(executable, graph, parameters));
}

int cuGraphExecDestroy(CUgraphExec executable) {
    const CUresult result = KS_REAL(cuGraphExecDestroy)(executable);
    if (result == CUDA_SUCCESS)
        forget(executable);
    return result;
}

int cuDeviceGraphMemTrim(CUdevice device) {
    const CUresult result = KS_REAL(cuDeviceGraphMemTrim)(device);
    const int cell = ks_cell_of_device(device);
    if (result == CUDA_SUCCESS && cell != KS_NO_CELL && atomic_load(&cells[cell].device) != 0) {
        atomic_fetch_add(&cells[cell].trims, 1);
        ks_reserve_look(&cells[cell].reserve);
    }
    return result;
}

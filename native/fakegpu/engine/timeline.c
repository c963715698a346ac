#include "timeline.h"

#include <stdatomic.h>
#include <string.h>

/* Enough for seconds of slices; a prediction past it only means waking up to look again. */
#define PREDICTED_STEPS 4096

/* A client's place in its queue. */
struct cursor {
    uint32_t client;
    uint64_t submitted;
    uint64_t completed;
    uint64_t done_ns;
};

/* A copy of what a step depends on; only clients with work are in it. */
struct timeline {
    uint64_t time_ns;
    uint64_t slice_left_ns;
    uint32_t current; /* client */
    uint32_t cursors;
    struct cursor cursor[CLIENTS_MAX];
};

struct ran {
    struct cursor *cursor;
    uint64_t ran_ns;
    bool finished;
};

uint32_t next_client(const struct gpu *gpu, uint32_t from) {
    for (uint32_t client = from; client < CLIENTS_MAX; client = (client | 63) + 1) {
        uint64_t bits = gpu->attached[client / 64] >> (client % 64);
        if (bits != 0)
            return client + (uint32_t)__builtin_ctzll(bits);
    }
    return CLIENTS_MAX;
}

static void load(const struct gpu *gpu, struct timeline *line) {
    line->time_ns = gpu->time_ns;
    line->slice_left_ns = gpu->slice_left_ns;
    line->current = gpu->current;
    line->cursors = 0;
    for (uint32_t i = next_client(gpu, 0); i < CLIENTS_MAX; i = next_client(gpu, i + 1)) {
        const struct client *client = &gpu->client[i];
        if (client->submitted != client->completed)
            line->cursor[line->cursors++] =
                (struct cursor){i, client->submitted, client->completed, client->done_ns};
    }
}

static bool has_work(const struct cursor *cursor) {
    return cursor->submitted != cursor->completed;
}

/* Whose turn it is: the current client while its slice lasts, then the next one with work. */
static struct cursor *choose(struct timeline *line, uint32_t *runnable) {
    struct cursor *current = NULL;
    struct cursor *after = NULL;
    struct cursor *first = NULL;
    *runnable = 0;
    for (uint32_t i = 0; i < line->cursors; i++) {
        struct cursor *cursor = &line->cursor[i];
        if (!has_work(cursor))
            continue;
        *runnable += 1;
        if (first == NULL)
            first = cursor;
        if (cursor->client == line->current)
            current = cursor;
        else if (cursor->client > line->current && after == NULL)
            after = cursor;
    }
    if (current != NULL && line->slice_left_ns > 0)
        return current;
    line->slice_left_ns = SLICE_NS;
    return after != NULL ? after : first;
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Runs one kernel on, until it ends, its slice ends, or `until_ns`. */
static bool run(const struct gpu *gpu, struct timeline *line, uint64_t until_ns, struct ran *ran) {
    if (line->time_ns >= until_ns)
        return false;
    uint32_t runnable;
    struct cursor *cursor = choose(line, &runnable);
    if (cursor == NULL)
        return false;
    const struct kernel *kernel =
        &gpu->client[cursor->client].kernel[cursor->completed % QUEUE_DEPTH];
    uint64_t left_ns = kernel->duration_ns - least(cursor->done_ns, kernel->duration_ns);
    uint64_t ran_ns = least(left_ns, until_ns - line->time_ns);
    if (runnable > 1)
        ran_ns = least(ran_ns, line->slice_left_ns);
    ran->cursor = cursor;
    ran->ran_ns = ran_ns;
    ran->finished = ran_ns == left_ns;
    line->current = cursor->client;
    line->time_ns += ran_ns;
    /* A client alone on the GPU uses no slice up: the result must not depend on how often it is
     * read. */
    line->slice_left_ns = runnable > 1 ? line->slice_left_ns - ran_ns : SLICE_NS;
    cursor->done_ns = ran->finished ? 0 : cursor->done_ns + ran_ns;
    cursor->completed += ran->finished;
    return true;
}

static void apply(struct state *state, struct gpu *gpu) {
    const struct step *step = &gpu->step;
    struct client *client = &gpu->client[step->client];
    struct process *process = &state->process[client->record];
    gpu->time_ns = step->time_ns;
    gpu->slice_left_ns = step->slice_left_ns;
    gpu->current = step->client;
    gpu->busy_ns = step->gpu_busy_ns;
    client->done_ns = step->done_ns;
    process->busy_ns[gpu - state->gpu] = step->process_busy_ns;
    if (step->finished)
        client->kernel[(step->completed - 1) % QUEUE_DEPTH].end_ns = step->time_ns;
    /* Read without the lock by its owner: the end time must be there before it. */
    __atomic_store_n(&client->completed, step->completed, __ATOMIC_RELEASE);
}

static void commit(struct state *state, struct gpu *gpu, const struct timeline *line,
                   const struct ran *ran) {
    struct step *step = &gpu->step;
    const struct client *client = &gpu->client[ran->cursor->client];
    step->client = ran->cursor->client;
    step->finished = ran->finished;
    step->time_ns = line->time_ns;
    step->slice_left_ns = line->slice_left_ns;
    step->completed = ran->cursor->completed;
    step->done_ns = ran->cursor->done_ns;
    step->gpu_busy_ns = gpu->busy_ns + ran->ran_ns;
    step->process_busy_ns = state->process[client->record].busy_ns[gpu - state->gpu] + ran->ran_ns;
    /* A killed process stops between two instructions: only the compiler could reorder these. */
    atomic_signal_fence(memory_order_seq_cst);
    step->pending = 1;
    atomic_signal_fence(memory_order_seq_cst);
    apply(state, gpu);
    atomic_signal_fence(memory_order_seq_cst);
    step->pending = 0;
}

void timeline_repair(struct state *state, struct gpu *gpu) {
    if (gpu->step.pending == 0)
        return;
    apply(state, gpu);
    atomic_signal_fence(memory_order_seq_cst);
    gpu->step.pending = 0;
}

void timeline_advance(struct state *state, struct gpu *gpu, uint64_t now_ns) {
    struct timeline line;
    struct ran ran;
    load(gpu, &line);
    while (run(gpu, &line, now_ns, &ran))
        commit(state, gpu, &line, &ran);
    if (gpu->time_ns < now_ns)
        gpu->time_ns = now_ns;
}

uint64_t timeline_predict(const struct gpu *gpu, uint32_t client, uint64_t number) {
    struct timeline line;
    struct ran ran;
    load(gpu, &line);
    for (int steps = 0; steps < PREDICTED_STEPS && run(gpu, &line, UINT64_MAX, &ran); steps++) {
        if (ran.cursor->client == client && ran.cursor->completed >= number)
            break;
    }
    return line.time_ns;
}

bool timeline_contended(const struct gpu *gpu, uint32_t client) {
    for (uint32_t i = next_client(gpu, 0); i < CLIENTS_MAX; i = next_client(gpu, i + 1))
        if (i != client && gpu->client[i].submitted != gpu->client[i].completed)
            return true;
    return false;
}

#include "timeline.h"

#include <stdatomic.h>
#include <string.h>

/* Enough for seconds of slices; a prediction past it only means waking up to look again. */
#define PREDICTED_STEPS 4096

/* Queues that a prediction looks at; past it others' work is left out, which makes it earlier. */
#define PREDICTED_HEADS 1024u

/* A client's place in its queues. */
struct cursor {
    uint32_t client;
    bool has_work;
    uint64_t ran_ns;
    struct head *head; /* one a queue */
};

/* What a step depends on; only clients with work are in it. */
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
};

uint32_t next_client(const struct gpu *gpu, uint32_t from) {
    for (uint32_t client = from; client < CLIENTS_MAX; client = (client | 63) + 1) {
        uint64_t bits = gpu->attached[client / 64] >> (client % 64);
        if (bits != 0)
            return client + (uint32_t)__builtin_ctzll(bits);
    }
    return CLIENTS_MAX;
}

/* ---- queues ---------------------------------------------------------------- */

static struct kernel *kernel_at(struct client *client, uint64_t number) {
    return &client->kernel[(number - 1) % QUEUE_DEPTH];
}

static const struct kernel *look_at(const struct client *client, uint64_t number) {
    return &client->kernel[(number - 1) % QUEUE_DEPTH];
}

bool timeline_ended(const struct client *client, uint64_t number) {
    /* Its place is taken by another only when it has ended. */
    return __atomic_load_n(&client->completed, __ATOMIC_ACQUIRE) >= number ||
           __atomic_load_n(&look_at(client, number)->end_ns, __ATOMIC_ACQUIRE) != 0;
}

/* Whether a kernel is over where the queues stand at these heads. */
static bool is_over(const struct client *client, const struct head *heads, uint64_t number) {
    if (timeline_ended(client, number))
        return true;
    const struct head *head = &heads[look_at(client, number)->queue];
    return head->number == 0 || head->number > number;
}

static bool is_empty(const struct client *client, const struct head *head) {
    return head->number == 0 || head->number > client->submitted;
}

/* Whether the kernel at a head has ended by now; one that may begin does so. */
static bool progress(const struct client *client, const struct head *heads, struct head *head,
                     uint64_t ran_ns) {
    const struct kernel *kernel = look_at(client, head->number);
    if (kernel->end_ns != 0)
        return true;
    if (head->begin_ns == 0 && kernel->after != 0 && !is_over(client, heads, kernel->after))
        return false;
    if (head->begin_ns == 0)
        head->begin_ns = ran_ns;
    return head->begin_ns + kernel->duration_ns <= ran_ns;
}

/* Moves queues on past what is over. `ends` is the client where its kernels are to be told so, or
 * NULL on a copy. Whoever is killed in the midst of it, the next one goes on. */
static void settle(const struct client *client, struct head *heads, uint64_t ran_ns,
                   struct client *ends, uint64_t time_ns) {
    bool moved;
    do {
        moved = false;
        for (uint32_t queue = 0; queue < client->queues; queue++) {
            struct head *head = &heads[queue];
            if (is_empty(client, head) || !progress(client, heads, head, ran_ns))
                continue;
            if (ends != NULL && kernel_at(ends, head->number)->end_ns == 0)
                __atomic_store_n(&kernel_at(ends, head->number)->end_ns, time_ns, __ATOMIC_RELEASE);
            head->begin_ns = 0;
            atomic_signal_fence(memory_order_seq_cst);
            head->number = look_at(client, head->number)->next;
            moved = true;
        }
    } while (moved);
}

void timeline_settle(struct gpu *gpu, uint32_t index) {
    struct client *client = &gpu->client[index];
    settle(client, client->head, client->ran_ns, client, gpu->time_ns);
    uint64_t completed = client->completed;
    while (completed < client->submitted && look_at(client, completed + 1)->end_ns != 0)
        completed++;
    /* Read without the lock by its owner: the end times must be there before it. */
    __atomic_store_n(&client->completed, completed, __ATOMIC_RELEASE);
}

uint64_t timeline_submit(struct client *client, uint32_t queue, uint64_t duration_ns,
                         uint64_t after) {
    uint64_t number = client->submitted + 1;
    struct head *head = &client->head[queue];
    *kernel_at(client, number) =
        (struct kernel){.duration_ns = duration_ns, .after = after, .queue = queue};
    if (head->number == 0)
        head->number = number;
    else
        kernel_at(client, client->last[queue])->next = number;
    client->last[queue] = number;
    if (queue >= client->queues)
        client->queues = queue + 1;
    atomic_signal_fence(memory_order_seq_cst);
    client->submitted = number;
    return number;
}

/* ---- a step ---------------------------------------------------------------- */

static void start(const struct gpu *gpu, struct timeline *line) {
    line->time_ns = gpu->time_ns;
    line->slice_left_ns = gpu->slice_left_ns;
    line->current = gpu->current;
    line->cursors = 0;
}

static void add(struct timeline *line, const struct client *client, uint32_t index,
                struct head *heads) {
    line->cursor[line->cursors++] =
        (struct cursor){.client = index, .has_work = true, .ran_ns = client->ran_ns, .head = heads};
}

static bool is_busy(const struct client *client) {
    return client->submitted != client->completed;
}

static bool has_work(const struct client *client, const struct head *heads) {
    uint32_t queue = 0;
    while (queue < client->queues && is_empty(client, &heads[queue]))
        queue++;
    return queue < client->queues;
}

/* Whose turn it is: the current client while its slice lasts, then the next one with work. */
static struct cursor *choose(struct timeline *line, uint32_t *runnable) {
    struct cursor *current = NULL;
    struct cursor *after = NULL;
    struct cursor *first = NULL;
    *runnable = 0;
    for (uint32_t i = 0; i < line->cursors; i++) {
        struct cursor *cursor = &line->cursor[i];
        if (!cursor->has_work)
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

/* How long until the first of the kernels that run side by side ends. */
static uint64_t shortest(const struct client *client, const struct cursor *cursor) {
    uint64_t left_ns = UINT64_MAX;
    for (uint32_t queue = 0; queue < client->queues; queue++) {
        const struct head *head = &cursor->head[queue];
        if (is_empty(client, head) || head->begin_ns == 0)
            continue;
        uint64_t end_ns = head->begin_ns + look_at(client, head->number)->duration_ns;
        left_ns = least(left_ns, end_ns - cursor->ran_ns);
    }
    return left_ns;
}

/* Works out what a step does: one client runs until one of its kernels ends, its slice ends, or
 * `until_ns`. */
static void run(struct timeline *line, const struct client *client, struct cursor *cursor,
                uint32_t runnable, uint64_t until_ns, struct ran *ran) {
    uint64_t ran_ns = least(shortest(client, cursor), until_ns - line->time_ns);
    if (runnable > 1)
        ran_ns = least(ran_ns, line->slice_left_ns);
    ran->cursor = cursor;
    ran->ran_ns = ran_ns;
    line->time_ns += ran_ns;
    /* A client alone on the GPU uses no slice up: the result must not depend on how often it is
     * read. */
    line->slice_left_ns = runnable > 1 ? line->slice_left_ns - ran_ns : SLICE_NS;
    cursor->ran_ns += ran_ns;
}

/* The client of the next step; NULL: none. */
static struct cursor *next(struct timeline *line, uint64_t until_ns, uint32_t *runnable) {
    struct cursor *cursor = line->time_ns < until_ns ? choose(line, runnable) : NULL;
    if (cursor != NULL)
        line->current = cursor->client;
    return cursor;
}

static void apply(struct state *state, struct gpu *gpu) {
    const struct step *step = &gpu->step;
    struct client *client = &gpu->client[step->client];
    struct process *process = &state->process[client->record];
    gpu->time_ns = step->time_ns;
    gpu->slice_left_ns = step->slice_left_ns;
    gpu->current = step->client;
    gpu->busy_ns = step->gpu_busy_ns;
    client->ran_ns = step->ran_ns;
    process->busy_ns[gpu - state->gpu] = step->process_busy_ns;
    timeline_settle(gpu, step->client);
}

static void commit(struct state *state, struct gpu *gpu, const struct timeline *line,
                   const struct ran *ran) {
    struct step *step = &gpu->step;
    const struct client *client = &gpu->client[ran->cursor->client];
    step->client = ran->cursor->client;
    step->time_ns = line->time_ns;
    step->slice_left_ns = line->slice_left_ns;
    step->ran_ns = ran->cursor->ran_ns;
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

/* ---- the shared state, and a copy ------------------------------------------- */

void timeline_advance(struct state *state, struct gpu *gpu, uint64_t now_ns) {
    struct timeline line;
    struct cursor *cursor;
    struct ran ran;
    uint32_t runnable;
    start(gpu, &line);
    for (uint32_t i = next_client(gpu, 0); i < CLIENTS_MAX; i = next_client(gpu, i + 1))
        if (is_busy(&gpu->client[i]))
            add(&line, &gpu->client[i], i, gpu->client[i].head);
    while ((cursor = next(&line, now_ns, &runnable)) != NULL) {
        const struct client *client = &gpu->client[cursor->client];
        timeline_settle(gpu, cursor->client);
        if (is_busy(client)) {
            run(&line, client, cursor, runnable, now_ns, &ran);
            commit(state, gpu, &line, &ran);
        }
        cursor->has_work = is_busy(client);
    }
    if (gpu->time_ns < now_ns)
        gpu->time_ns = now_ns;
}

/* Copies the queues of clients with work; that of `watched` comes before what does not fit. */
static void copy_queues(const struct gpu *gpu, uint32_t watched, struct timeline *line,
                        struct head *heads) {
    uint32_t room = PREDICTED_HEADS - gpu->client[watched].queues;
    for (uint32_t i = next_client(gpu, 0); i < CLIENTS_MAX; i = next_client(gpu, i + 1)) {
        const struct client *client = &gpu->client[i];
        if (!is_busy(client) || (i != watched && client->queues > room))
            continue;
        if (i != watched)
            room -= client->queues;
        memcpy(heads, client->head, client->queues * sizeof *heads);
        add(line, client, i, heads);
        heads += client->queues;
    }
}

static void settle_copy(const struct client *client, struct cursor *cursor) {
    settle(client, cursor->head, cursor->ran_ns, NULL, 0);
    cursor->has_work = has_work(client, cursor->head);
}

uint64_t timeline_predict(const struct gpu *gpu, uint32_t watched, uint64_t number) {
    struct head heads[PREDICTED_HEADS];
    struct timeline line;
    struct cursor *cursor;
    struct ran ran;
    uint32_t runnable;
    start(gpu, &line);
    copy_queues(gpu, watched, &line, heads);
    for (int steps = 0; steps < PREDICTED_STEPS; steps++) {
        cursor = next(&line, UINT64_MAX, &runnable);
        if (cursor == NULL)
            break;
        const struct client *client = &gpu->client[cursor->client];
        settle_copy(client, cursor);
        if (cursor->has_work &&
            !(cursor->client == watched && is_over(client, cursor->head, number))) {
            run(&line, client, cursor, runnable, UINT64_MAX, &ran);
            settle_copy(client, cursor);
        }
        if (cursor->client == watched && is_over(client, cursor->head, number))
            break;
    }
    return line.time_ns;
}

bool timeline_contended(const struct gpu *gpu, uint32_t client) {
    for (uint32_t i = next_client(gpu, 0); i < CLIENTS_MAX; i = next_client(gpu, i + 1))
        if (i != client && is_busy(&gpu->client[i]))
            return true;
    return false;
}

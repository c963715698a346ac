/*
 * timeline_test: what the engine's arithmetic promises, over random histories.
 *
 *   timeline_test [SEED] [HISTORIES]
 *
 * 1. It does not matter which process reads the state, or when: replaying a stretch at once, and
 *    replaying it in many small pieces, leave the same state.
 * 2. A prediction comes true when nothing more is submitted.
 * 3. A step that its author did not live to finish, cut off after any number
 *    of its changes, is finished by the process that repairs the state.
 * 4. Time is neither lost nor made: the GPU's busy time is the sum over its
 *    processes, and it is never idle while a process has work.
 *
 * 5. The kernels of a queue end in order, and none before what it comes after.
 *
 * Every second history is of processes with several queues. Prints "ok", or the seed and the
 * promise that was broken.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../engine/timeline.h"

#define CLIENTS 5u
#define BYTES   (sizeof(struct state) + sizeof(struct gpu))

static uint64_t seed;
static uint64_t random_state;
static uint64_t queues; /* of each process */

static uint64_t below(uint64_t bound) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % bound;
}

static void require(bool holds, const char *what) {
    if (holds)
        return;
    printf("seed %llu: %s\n", (unsigned long long)seed, what);
    exit(1);
}

static struct state *make(void) {
    struct state *state = calloc(1, BYTES);
    require(state != NULL, "no memory");
    state->gpus = 1;
    state->gpu[0].time_ns = 1; /* the end of what has not ended is 0 */
    for (uint32_t i = 0; i < CLIENTS; i++) {
        state->process[i].id = i + 1;
        state->gpu[0].client[i].process = i + 1;
        state->gpu[0].client[i].record = i;
        state->gpu[0].client[i].ran_ns = 1;
        state->gpu[0].attached[0] |= UINT64_C(1) << i;
    }
    return state;
}

static void submit_some(struct gpu *gpu) {
    for (uint64_t kernels = below(6); kernels > 0; kernels--) {
        struct client *client = &gpu->client[below(CLIENTS)];
        uint64_t duration_ns = 1000 * (1 + below(below(2) == 0 ? 300 : 5000));
        uint64_t before = client->submitted - client->completed;
        uint64_t after =
            queues > 1 && before > 0 && below(3) == 0 ? client->completed + 1 + below(before) : 0;
        if (queues > 1 && below(8) == 0)
            duration_ns = 0;
        timeline_submit(client, (uint32_t)below(queues), duration_ns, after);
    }
}

static bool has_work(const struct gpu *gpu) {
    return timeline_contended(gpu, CLIENTS_MAX);
}

static void check_order(const struct gpu *gpu) {
    for (uint32_t i = 0; i < CLIENTS; i++) {
        const struct client *client = &gpu->client[i];
        uint64_t first = client->submitted > QUEUE_DEPTH ? client->submitted - QUEUE_DEPTH + 1 : 1;
        for (uint64_t number = first; number <= client->submitted; number++) {
            const struct kernel *kernel = &client->kernel[(number - 1) % QUEUE_DEPTH];
            const uint64_t earlier[] = {kernel->after, kernel->next};
            for (int which = 0; which < 2; which++) {
                if (earlier[which] < first)
                    continue;
                uint64_t other_ns = client->kernel[(earlier[which] - 1) % QUEUE_DEPTH].end_ns;
                uint64_t one_ns = which == 0 ? other_ns : kernel->end_ns;
                uint64_t two_ns = which == 0 ? kernel->end_ns : other_ns;
                require(two_ns == 0 || (one_ns != 0 && one_ns <= two_ns), "the order is wrong");
            }
        }
    }
}

static uint64_t busy_of_processes(const struct state *state) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < CLIENTS; i++)
        sum += state->process[i].busy_ns[0];
    return sum;
}

static void advance_in_pieces(struct state *state, uint64_t end_ns) {
    struct gpu *gpu = &state->gpu[0];
    while (gpu->time_ns < end_ns) {
        uint64_t next = gpu->time_ns + 1 + below(700000);
        timeline_advance(state, gpu, next < end_ns ? next : end_ns);
    }
}

/* The word that remembers the last step may differ: it is no part of what is promised. */
static bool same(struct state *a, struct state *b) {
    memset(&a->gpu[0].step, 0, sizeof a->gpu[0].step);
    memset(&b->gpu[0].step, 0, sizeof b->gpu[0].step);
    return memcmp(a, b, BYTES) == 0;
}

/* A state as it was before its last step in some words and after it in the others. */
static void cut_off(struct state *half, const struct state *before, const struct state *after) {
    const struct step *step = &after->gpu[0].step;
    struct gpu *gpu = &half->gpu[0];
    struct client *client = &gpu->client[step->client];
    const struct client *done = &after->gpu[0].client[step->client];
    memcpy(half, before, BYTES);
    gpu->step = *step;
    gpu->step.pending = 1;
    if (below(2))
        gpu->time_ns = after->gpu[0].time_ns;
    if (below(2))
        gpu->slice_left_ns = after->gpu[0].slice_left_ns;
    if (below(2))
        gpu->current = after->gpu[0].current;
    if (below(2))
        gpu->busy_ns = after->gpu[0].busy_ns;
    if (below(2))
        client->ran_ns = done->ran_ns;
    if (below(2))
        half->process[client->record] = after->process[client->record];
    if (below(2)) {
        memcpy(client->kernel, done->kernel, sizeof done->kernel);
        if (below(2)) {
            memcpy(client->head, done->head, sizeof done->head);
            if (below(2))
                client->completed = done->completed;
        }
    }
}

/* Markers end beside a step, not by it. */
static bool has_marker(const struct gpu *gpu) {
    for (uint32_t i = 0; i < CLIENTS; i++) {
        const struct client *client = &gpu->client[i];
        for (uint64_t number = client->completed + 1; number <= client->submitted; number++)
            if (client->kernel[(number - 1) % QUEUE_DEPTH].duration_ns == 0)
                return true;
    }
    return false;
}

/* The step is the last nanosecond of a kernel, or one in its midst. */
static void check_repair(const struct state *now, struct state *before, struct state *after,
                         struct state *half) {
    uint32_t client = (uint32_t)below(CLIENTS);
    const struct client *mine = &now->gpu[0].client[client];
    if (mine->completed == mine->submitted)
        return;
    uint64_t end_ns = timeline_predict(&now->gpu[0], client, mine->completed + 1);
    end_ns -= below(2) ? 0 : 500;
    memcpy(before, now, BYTES);
    timeline_advance(before, &before->gpu[0], end_ns - 1);
    if (has_marker(&before->gpu[0]))
        return;
    for (uint32_t i = 0; i < CLIENTS; i++)
        timeline_settle(&before->gpu[0], i);
    memcpy(after, before, BYTES);
    timeline_advance(after, &after->gpu[0], end_ns);
    cut_off(half, before, after);
    timeline_repair(half, &half->gpu[0]);
    require(same(half, after), "a step cut off is not finished by a repair");
}

static void check_prediction(const struct state *now, struct state *copy) {
    const struct gpu *gpu = &now->gpu[0];
    uint32_t client = (uint32_t)below(CLIENTS);
    uint64_t number = gpu->client[client].submitted;
    if (timeline_ended(&gpu->client[client], number))
        return;
    uint64_t end_ns = timeline_predict(gpu, client, number);
    memcpy(copy, now, BYTES);
    timeline_advance(copy, &copy->gpu[0], end_ns - 1);
    const struct client *done = &copy->gpu[0].client[client];
    require(!timeline_ended(done, number), "a kernel ended before its prediction");
    timeline_advance(copy, &copy->gpu[0], end_ns + 1); /* a marker's turn comes at that time */
    require(timeline_ended(done, number), "a prediction did not come true");
    require(done->kernel[(number - 1) % QUEUE_DEPTH].end_ns == end_ns, "a kernel's end is wrong");
}

int main(int count, char **arguments) {
    uint64_t first = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    uint64_t histories = count > 2 ? strtoull(arguments[2], NULL, 10) : 20;
    struct state *spare[3] = {make(), make(), make()};
    for (seed = first; seed < first + histories; seed++) {
        struct state *whole = make();
        struct state *pieces = make();
        queues = seed % 2 == 0 ? 1 : 1 + seed % QUEUES_MAX;
        random_state = seed * UINT64_C(0x9e3779b97f4a7c15);
        for (int look = 0; look < 60; look++) {
            submit_some(&whole->gpu[0]);
            memcpy(pieces, whole, BYTES);
            check_prediction(whole, spare[0]);
            check_repair(whole, spare[0], spare[1], spare[2]);
            uint64_t start_ns = whole->gpu[0].time_ns;
            uint64_t busy_ns = whole->gpu[0].busy_ns;
            uint64_t end_ns = start_ns + 1 + below(8000000);
            timeline_advance(whole, &whole->gpu[0], end_ns);
            advance_in_pieces(pieces, end_ns);
            check_order(&whole->gpu[0]);
            require(same(whole, pieces), "the result depends on who read the state when");
            require(whole->gpu[0].busy_ns == busy_of_processes(whole), "time was lost or made");
            require(!has_work(&whole->gpu[0]) ||
                        whole->gpu[0].busy_ns - busy_ns == end_ns - start_ns,
                    "the GPU was idle while a process had work");
        }
        free(whole);
        free(pieces);
    }
    for (int i = 0; i < 3; i++)
        free(spare[i]);
    puts("ok");
    return 0;
}

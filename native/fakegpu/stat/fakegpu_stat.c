/*
 * fakegpu-stat: what the engine knows, as one JSON line.
 *
 *   fakegpu-stat [--state DIR] [--profile P]    the GPUs and their processes
 *   fakegpu-stat --describe [--profile P]       the profile's GPUs; touches no state
 *   fakegpu-stat --models                       the models that profiles may name
 *   fakegpu-stat --raise GPU:XID [--state DIR]  has an error happen to a GPU, to all that use it
 *
 * Busy time is the engine's own, to the nanosecond: the truth that tests of
 * shares compare with. Processes that died stay listed with their totals.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../engine/engine.h"
#include "../engine/release.h"
#include "../engine/timeline.h"

static struct engine engine;

static void print_text(const char *text) {
    putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            printf("\\u%04x", (unsigned char)*text);
        else
            putchar(*text);
    }
    putchar('"');
}

/* The memory of a process on a GPU; its client only counts while it is this process's. */
static uint64_t memory_of(const struct gpu *gpu, const struct process *process, bool *client) {
    for (uint32_t i = next_client(gpu, 0); i < CLIENTS_MAX; i = next_client(gpu, i + 1)) {
        if (gpu->client[i].process == process->id) {
            *client = true;
            return gpu->client[i].memory_bytes;
        }
    }
    return 0;
}

static bool print_process(uint32_t index, uint32_t record, bool first) {
    const struct gpu *gpu = &engine.state->gpu[index];
    const struct process *process = &engine.state->process[record];
    bool client = false;
    pid_t host_pid = 0;
    if (process->id == 0)
        return false;
    uint64_t memory = memory_of(gpu, process, &client);
    if (!client && process->busy_ns[index] == 0)
        return false;
    bool alive = engine_process_alive(&engine, record, &host_pid);
    printf("%s{\"id\": %llu, \"host\": ", first ? "" : ", ", (unsigned long long)process->id);
    print_text(process->host);
    printf(", \"pid\": %u, \"host_pid\": %d, \"comm\": ", process->pid, (int)host_pid);
    print_text(process->comm);
    printf(", \"alive\": %s, \"busy_ns\": %llu, \"memory\": %llu}", alive ? "true" : "false",
           (unsigned long long)process->busy_ns[index], (unsigned long long)memory);
    return true;
}

static uint64_t print_gpu(uint32_t index) {
    const struct gpu *gpu = &engine.state->gpu[index];
    bool first = true;
    uint64_t now = engine_enter(&engine, index);
    engine_reap(&engine, index);
    printf("%s{\"index\": %u, \"uuid\": ", index == 0 ? "" : ", ", index);
    print_text(gpu->uuid);
    printf(", \"model\": ");
    print_text(gpu->model);
    printf(", \"total_memory\": %llu, \"used_memory\": %llu, \"busy_ns\": %llu, \"processes\": [",
           (unsigned long long)gpu->memory_bytes,
           (unsigned long long)engine_memory_used(&engine, index),
           (unsigned long long)gpu->busy_ns);
    for (uint32_t record = 0; record < PROCESSES_MAX; record++)
        if (print_process(index, record, first))
            first = false;
    printf("]}");
    engine_leave(&engine, index);
    return now;
}

static int print_models(void) {
    printf("[");
    for (const struct model *model = profile_models(); model->key != NULL; model++) {
        printf("%s{\"model\": ", model == profile_models() ? "" : ", ");
        print_text(model->key);
        printf(", \"name\": ");
        print_text(model->name);
        printf(", \"memory\": %llu}", (unsigned long long)model->memory_bytes);
    }
    printf("]\n");
    return 0;
}

static int print_profile(const char *program) {
    char error[512];
    char uuid[48];
    struct profile *profile = &engine.profile;
    if (!profile_choose(profile, program, error, sizeof error)) {
        fprintf(stderr, "fakegpu-stat: %s\n", error);
        return 2;
    }
    printf("{\"gpus\": [");
    for (unsigned gpu = 0; gpu < profile->gpus; gpu++) {
        profile_uuid_text(profile, gpu, uuid);
        printf("%s{\"index\": %u, \"uuid\": \"%s\", \"model\": ", gpu == 0 ? "" : ", ", gpu, uuid);
        print_text(profile->models[gpu].name);
        printf(", \"total_memory\": %llu, \"pci_address\": \"0000:%02x:00.0\", \"numa_node\": %u",
               (unsigned long long)profile->models[gpu].memory_bytes, profile_pci_bus(gpu),
               profile->numa[gpu]);
        printf(", \"cpu_list\": \"%s\"}", profile->cpus[profile->numa[gpu]]);
    }
    printf("], \"driver\": \"%u.%s\"}\n", profile->driver_version, RELEASE);
    return 0;
}

/* As if the hardware had found it: no process of its own is to blame. */
static int raise_error(const char *what) {
    unsigned gpu, xid;
    char rest;
    if (sscanf(what, "%u:%u%c", &gpu, &xid, &rest) != 2 || gpu >= engine.state->gpus) {
        fprintf(stderr, "fakegpu-stat: --raise %s: expected a GPU and an XID, as in 0:79\n", what);
        return 2;
    }
    engine_enter(&engine, gpu);
    engine_raise(&engine, gpu, xid, 0);
    printf("{\"raised\": %llu}\n", (unsigned long long)engine.state->gpu[gpu].xids);
    engine_leave(&engine, gpu);
    return 0;
}

static int wrong_use(const char *argument) {
    fprintf(stderr,
            "fakegpu-stat: %s\nusage: fakegpu-stat [--state DIR] [--profile P] | --describe "
            "[--profile P] | "
            "--models | --raise GPU:XID [--state DIR]\n",
            argument);
    return 2;
}

int main(int count, char **arguments) {
    char error[512];
    bool describe = false;
    const char *raised = NULL;
    for (int i = 1; i < count; i++) {
        bool state = strcmp(arguments[i], "--state") == 0;
        if (strcmp(arguments[i], "--raise") == 0 && i + 1 < count) {
            raised = arguments[++i];
            continue;
        }
        if (strcmp(arguments[i], "--models") == 0)
            return print_models();
        if (strcmp(arguments[i], "--describe") == 0) {
            describe = true;
            continue;
        }
        if (!state && strcmp(arguments[i], "--profile") != 0)
            return wrong_use(arguments[i]);
        if (i + 1 == count)
            return wrong_use("an option lacks its value");
        setenv(state ? "FAKEGPU_STATE" : "FAKEGPU_PROFILE", arguments[++i], 1);
    }
    if (describe)
        return print_profile(arguments[0]);
    if (!engine_open(&engine, ENGINE_LOOK, arguments[0], error, sizeof error)) {
        fprintf(stderr, "fakegpu-stat: %s\n", error);
        return 3;
    }
    if (raised != NULL)
        return raise_error(raised);
    uint64_t now = 0;
    printf("{\"gpus\": [");
    for (uint32_t index = 0; index < engine.state->gpus; index++)
        now = print_gpu(index);
    printf("], \"now_ns\": %llu}\n", (unsigned long long)now);
    return 0;
}

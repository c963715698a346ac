/*
 * A program with a GPU that runs commands: a line in, a JSON line out.
 *
 *   probe PATH
 *
 * PATH is the way by which it gets the driver's functions (paths.h). Built
 * twice: `probe` opens the driver by itself, `probe-linked` is linked to it.
 * Commands and their answers are the functions below `commands`; an answer has
 * `result`, the driver's code, and times on CLOCK_MONOTONIC in ns.
 */
#include "probe.h"
#include "paths.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static CUfunction kernel;
static CUcontext created;
static CUmodule module_of_created, module_of_primary;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int answer(int result) {
    printf("{\"result\": %d, \"now_ns\": %" PRId64 "}\n", result, now());
    return 0;
}

static int load_kernel(CUmodule *module) {
    const int result = driver.module_load(module, "// any image");
    return result != 0 ? result : driver.module_function(&kernel, *module, "kubeshare_spin_us");
}

/* ---- commands ---------------------------------------------------------------- */

static int do_init(char **words) {
    (void)words;
    return answer(driver.init(0));
}

/* retain DEVICE: the primary context */
static int do_retain(char **words) {
    CUcontext context = NULL;
    int result = driver.primary_retain(&context, atoi(words[1]));
    if (result == 0)
        result = driver.set_current(context);
    return answer(result != 0 ? result : load_kernel(&module_of_primary));
}

/* release DEVICE */
static int do_release(char **words) {
    return answer(driver.primary_release(atoi(words[1])));
}

/* create DEVICE: a context of its own */
static int do_create(char **words) {
    const int result = driver.create(&created, 0, atoi(words[1]));
    return answer(result != 0 ? result : load_kernel(&module_of_created));
}

static int do_destroy(char **words) {
    (void)words;
    driver.module_unload(module_of_created);
    return answer(driver.destroy(created));
}

static int answer_pointer(int result, CUdeviceptr pointer) {
    printf("{\"result\": %d, \"pointer\": %llu}\n", result, result == 0 ? pointer : 0);
    return 0;
}

/* alloc BYTES */
static int do_alloc(char **words) {
    CUdeviceptr pointer = 0;
    return answer_pointer(driver.alloc(&pointer, strtoull(words[1], NULL, 10)), pointer);
}

/* alloc32 BYTES: by the ABI of CUDA 2 */
static int do_alloc32(char **words) {
    unsigned int pointer = 0;
    return answer_pointer(driver.alloc32(&pointer, (unsigned)strtoull(words[1], NULL, 10)),
                          pointer);
}

/* pitch WIDTH HEIGHT */
static int do_pitch(char **words) {
    CUdeviceptr pointer = 0;
    size_t pitch = 0;
    const int result = driver.alloc_pitch(&pointer, &pitch, strtoull(words[1], NULL, 10),
                                          strtoull(words[2], NULL, 10), 4);
    return answer_pointer(result, pointer);
}

/* managed BYTES */
static int do_managed(char **words) {
    CUdeviceptr pointer = 0;
    return answer_pointer(driver.alloc_managed(&pointer, strtoull(words[1], NULL, 10), 1), pointer);
}

/* free POINTER */
static int do_free(char **words) {
    return answer(driver.free(strtoull(words[1], NULL, 10)));
}

/* info: the driver's figures of the GPU's memory */
static int do_info(char **words) {
    (void)words;
    size_t available = 0, total = 0, device_total = 0, alone = 0;
    const int result = driver.mem_info(&available, &total);
    driver.mem_info(&alone, NULL);
    driver.total_mem(&device_total, 0);
    printf("{\"result\": %d, \"free\": %zu, \"total\": %zu, \"device_total\": %zu, "
           "\"free_alone\": %zu}\n",
           result, available, total, device_total, alone);
    return 0;
}

/* nvml: NVML's figures, by both versions of its call */
static int do_nvml(char **words) {
    (void)words;
    struct nvml_memory memory = {0};
    struct nvml_memory_v2 memory_v2 = {.version = sizeof memory_v2 | 2 << 24};
    int result = nvml_memory(&memory, &memory_v2);
    printf("{\"result\": %d, \"total\": %llu, \"free\": %llu, \"used\": %llu, "
           "\"v2_total\": %llu, \"v2_free\": %llu, \"v2_used\": %llu, \"v2_reserved\": %llu}\n",
           result, memory.total, memory.free, memory.used, memory_v2.total, memory_v2.free,
           memory_v2.used, memory_v2.reserved);
    return 0;
}

static int launch(const char *how, unsigned microseconds) {
    void *parameters[] = {&microseconds};
    const CUlaunchConfig configuration = {.gridDimX = 1,
                                          .gridDimY = 1,
                                          .gridDimZ = 1,
                                          .blockDimX = 1,
                                          .blockDimY = 1,
                                          .blockDimZ = 1};
    if (strcmp(how, "ex") == 0)
        return driver.launch_ex(&configuration, kernel, parameters, NULL);
    if (strcmp(how, "cooperative") == 0)
        return driver.launch_cooperative(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters);
    return driver.launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

/* launch HOW MICROSECONDS COUNT: kernel, ex or cooperative */
static int do_launch(char **words) {
    int result = 0;
    for (int i = 0; i < atoi(words[3]) && result == 0; i++)
        result = launch(words[1], (unsigned)atoi(words[2]));
    return answer(result);
}

/* work MICROSECONDS COUNT QUEUED: kernels, never more than QUEUED of them at once */
static int do_work(char **words) {
    int result = 0;
    for (int i = 1; i <= atoi(words[2]) && result == 0; i++) {
        result = launch("kernel", (unsigned)atoi(words[1]));
        if (result == 0 && i % atoi(words[3]) == 0)
            result = driver.synchronize();
    }
    return answer(result);
}

/* memset POINTER BYTES */
static int do_memset(char **words) {
    return answer(driver.memset_d8(strtoull(words[1], NULL, 10), 1, strtoull(words[2], NULL, 10)));
}

static int do_sync(char **words) {
    (void)words;
    return answer(driver.synchronize());
}

/* ---- threads that allocate, free and launch at once ----------------------------- */

struct hammering {
    size_t bytes;
    int rounds;
    _Atomic uint64_t held, most;
    atomic_int refused, failed;
    CUcontext context;
};

static void *hammer(void *argument) {
    struct hammering *hammering = argument;
    driver.set_current(hammering->context);
    for (int i = 0; i < hammering->rounds; i++) {
        CUdeviceptr pointer;
        const int result = driver.alloc(&pointer, hammering->bytes);
        if (result == 2) {
            atomic_fetch_add(&hammering->refused, 1);
            continue;
        }
        const uint64_t held =
            atomic_fetch_add(&hammering->held, hammering->bytes) + hammering->bytes;
        uint64_t most = atomic_load(&hammering->most);
        while (held > most && !atomic_compare_exchange_weak(&hammering->most, &most, held))
            ;
        atomic_fetch_add(&hammering->failed, result != 0 || launch("kernel", 1) != 0);
        atomic_fetch_sub(&hammering->held, hammering->bytes);
        atomic_fetch_add(&hammering->failed, driver.free(pointer) != 0);
    }
    return NULL;
}

/* hammer THREADS BYTES ROUNDS */
static int do_hammer(char **words) {
    pthread_t threads[64];
    const int count = atoi(words[1]);
    struct hammering hammering = {.bytes = strtoull(words[2], NULL, 10), .rounds = atoi(words[3])};
    driver.get_current(&hammering.context);
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, hammer, &hammering);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("{\"result\": %d, \"most\": %" PRIu64 ", \"refused\": %d}\n", hammering.failed,
           hammering.most, hammering.refused);
    return 0;
}

/* threads COUNT: so many come, launch once, and go, one after the other */
static void *launch_once(void *context) {
    driver.set_current(context);
    return launch("kernel", 1) == 0 ? context : NULL;
}

static int do_threads(char **words) {
    CUcontext context;
    int failed = 0;
    driver.get_current(&context);
    for (int i = 0; i < atoi(words[1]); i++) {
        pthread_t thread;
        void *outcome = NULL;
        pthread_create(&thread, NULL, launch_once, context);
        pthread_join(thread, &outcome);
        failed += outcome == NULL;
    }
    return answer(failed);
}

static int obey(char *line);

/* touch FILE DESCRIPTORS: opens and closes a file, then closes so many descriptors from 700 on */
static int do_touch(char **words) {
    const int descriptor = open(words[1], O_RDWR);
    const int result = descriptor < 0 ? -1 : close(descriptor);
    for (int other = 700; other < 700 + atoi(words[2]); other++)
        close(other);
    return answer(result);
}

#define LOWEST_USURPED 700
#define MOST_USURPED   64
static const char secret[] = "the program's";
static int far_ends[MOST_USURPED];

/* usurp: closes the descriptors that the library keeps far up, and has sockets of its own there,
 * with something to read */
static int do_usurp(char **words) {
    int count = 0;
    (void)words;
    for (int number = LOWEST_USURPED; number < LOWEST_USURPED + MOST_USURPED; number++) {
        int pair[2];
        if (fcntl(number, F_GETFD) < 0)
            continue;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) != 0 ||
            dup2(pair[0], number) < 0 || send(pair[1], secret, sizeof secret, 0) < 0)
            return answer(-1);
        close(pair[0]);
        far_ends[number - LOWEST_USURPED] = pair[1];
        count++;
    }
    printf("{\"result\": 0, \"count\": %d}\n", count);
    return 0;
}

/* usurped: whether nobody has read, written or closed them since */
static int do_usurped(char **words) {
    int result = 0;
    (void)words;
    for (int i = 0; i < MOST_USURPED; i++) {
        char bytes[256];
        if (far_ends[i] == 0)
            continue;
        if (recv(far_ends[i], bytes, sizeof bytes, 0) >= 0 || errno != EAGAIN ||
            recv(LOWEST_USURPED + i, bytes, sizeof bytes, 0) != (ssize_t)sizeof secret ||
            send(far_ends[i], secret, sizeof secret, 0) < 0)
            result = -1;
    }
    return answer(result);
}

/* fork COMMAND…: a child does it and exits, with its parent's driver in its memory */
static int do_fork(char **words) {
    char line[256] = "";
    for (words++; *words != NULL; words++) {
        strcat(line, *words);
        strcat(line, " ");
    }
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        obey(line);
        fflush(stdout);
        _exit(0);
    }
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : answer(-1);
}

/* orphan: a child that lives for a minute and does nothing */
static int do_orphan(char **words) {
    (void)words;
    int ready[2];
    char byte = 0;
    if (pipe(ready) != 0)
        return answer(-1);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(0);
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1)
        return answer(-1);
    close(ready[0]);
    printf("{\"result\": %d, \"child\": %d}\n", child < 0, (int)child);
    return 0;
}

static const struct command commands[] = {
    {"init",    0, do_init   },
    {"retain",  1, do_retain },
    {"release", 1, do_release},
    {"create",  1, do_create },
    {"destroy", 0, do_destroy},
    {"alloc",   1, do_alloc  },
    {"alloc32", 1, do_alloc32},
    {"pitch",   2, do_pitch  },
    {"managed", 1, do_managed},
    {"free",    1, do_free   },
    {"info",    0, do_info   },
    {"nvml",    0, do_nvml   },
    {"launch",  3, do_launch },
    {"work",    3, do_work   },
    {"memset",  2, do_memset },
    {"sync",    0, do_sync   },
    {"hammer",  3, do_hammer },
    {"threads", 1, do_threads},
    {"touch",   2, do_touch  },
    {"usurp",   0, do_usurp  },
    {"usurped", 0, do_usurped},
    {"orphan",  0, do_orphan },
    {"fork",    1, do_fork   },
    {NULL,      0, NULL      },
};

static const struct command *command_named(const struct command *list, const char *name) {
    while (list->name != NULL && strcmp(list->name, name) != 0)
        list++;
    return list->name != NULL ? list : NULL;
}

static int obey(char *line) {
    char *words[16] = {0};
    int count = 0;
    for (char *word = strtok(line, " \n"); word != NULL && count < 15; word = strtok(NULL, " \n"))
        words[count++] = word;
    const struct command *command = command_named(commands, words[0]);
    if (command == NULL)
        command = command_named(memory_commands, words[0]);
    if (command != NULL && count > command->arguments)
        return command->run(words);
    fprintf(stderr, "probe: no such command, or too few arguments: %s\n", words[0]);
    return 2;
}

int main(int count, char **arguments) {
    char line[256];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count != 2 || !find_driver(arguments[1])) {
        fprintf(stderr, "probe: usage: probe PATH, one of: %s\n", path_names);
        return 2;
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (obey(line) != 0)
            return 2;
    }
    return 0;
}

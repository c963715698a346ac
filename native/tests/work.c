/*
 * A program whose work is more than launches: a line in, a JSON line out.
 *
 *   work
 *
 * Linked to the driver. It has two streams, 0 and 1, that do not wait for the
 * default one, a third one in a green context if asked for, a graph, and a word of memory. Commands
 * and their answers are the functions below `commands`; an answer has `result`, the driver's code,
 * and the time on CLOCK_MONOTONIC in ns.
 */
#include <cuda.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static CUcontext context;
static CUmodule module;
static CUfunction spin;
static CUstream streams[3];
static CUgreenCtx green;
static CUgraph graph;
static CUgraphExec executable;
static CUdeviceptr word, held;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void answer(CUresult result) {
    printf("{\"result\": %d, \"now_ns\": %" PRId64 "}\n", (int)result, now());
}

static CUresult launch(CUstream stream, unsigned microseconds) {
    void *parameters[] = {&microseconds};
    return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static CUresult launch_many(CUstream stream, unsigned microseconds, int count) {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < count && result == 0; i++)
        result = launch(stream, microseconds);
    return result;
}

static CUstream stream_of(const char *number) {
    return streams[atoi(number)];
}

/* ---- commands ---------------------------------------------------------------- */

/* init: the first GPU */
static void do_init(char **words) {
    (void)words;
    CUresult result = cuInit(0);
    if (result == 0)
        result = cuDevicePrimaryCtxRetain(&context, 0);
    if (result == 0)
        result = cuCtxSetCurrent(context);
    if (result == 0)
        result = cuModuleLoadData(&module, "// any image");
    if (result == 0)
        result = cuModuleGetFunction(&spin, module, "kubeshare_spin_us");
    if (result == 0)
        result = cuMemAlloc(&word, 4096);
    for (int i = 0; i < 2 && result == 0; i++)
        result = cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING);
    answer(result);
}

/* launch STREAM MICROSECONDS COUNT */
static void do_launch(char **words) {
    answer(launch_many(stream_of(words[1]), (unsigned)atoi(words[2]), atoi(words[3])));
}

/* fault STREAM: a kernel that breaks the context; the fake GPU knows it by its name */
static void do_fault(char **words) {
    CUfunction fault;
    unsigned xid = 31;
    void *parameters[] = {&xid};
    CUresult result = cuModuleGetFunction(&fault, module, "kubeshare_fault");
    if (result == CUDA_SUCCESS)
        result = cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, stream_of(words[1]), parameters, NULL);
    answer(result);
}

/* begin STREAM MODE: a capture; 0 global, 1 of the thread, 2 relaxed */
static void do_begin(char **words) {
    answer(cuStreamBeginCapture(stream_of(words[1]), (CUstreamCaptureMode)atoi(words[2])));
}

static void forget_graph(void) {
    if (executable != NULL)
        cuGraphExecDestroy(executable);
    if (graph != NULL)
        cuGraphDestroy(graph);
    executable = NULL;
    graph = NULL;
}

/* end STREAM: the capture, and make its graph ready to be launched */
static void do_end(char **words) {
    forget_graph();
    CUresult result = cuStreamEndCapture(stream_of(words[1]), &graph);
    if (result == 0)
        result = cuGraphInstantiateWithFlags(&executable, graph, 0);
    answer(result);
}

/* graph STREAM: launches it */
static void do_graph(char **words) {
    answer(cuGraphLaunch(executable, stream_of(words[1])));
}

/* destroy STREAM */
static void do_destroy(char **words) {
    answer(cuStreamDestroy(stream_of(words[1])));
}

/* wait STREAM VALUE: what follows on the stream waits until the word has it */
static void do_wait(char **words) {
    answer(cuStreamWaitValue32(stream_of(words[1]), word, (cuuint32_t)atoi(words[2]),
                               CU_STREAM_WAIT_VALUE_EQ));
}

/* pass STREAM VALUE: a kernel, and behind it the word gets a value */
static void do_pass(char **words) {
    CUresult result = launch(stream_of(words[1]), 1000);
    if (result == 0)
        result = cuStreamWriteValue32(stream_of(words[1]), word, (cuuint32_t)atoi(words[2]), 0);
    answer(result);
}

static CUresult enter_green(void) {
    CUcontext entered;
    const CUresult result = cuCtxFromGreenCtx(&entered, green);
    return result != CUDA_SUCCESS ? result : cuCtxSetCurrent(entered);
}

/* Green contexts came with CUDA 12.4, and their own way to make streams with 12.5. */
static CUresult add_green_stream(void) {
    int version;
    CUresult result = cuDriverGetVersion(&version);
    if (result == CUDA_SUCCESS && version >= 12050)
        return cuGreenCtxStreamCreate(&streams[2], green, CU_STREAM_NON_BLOCKING, 0);
    if (result == CUDA_SUCCESS)
        result = enter_green();
    if (result == CUDA_SUCCESS)
        result = cuStreamCreate(&streams[2], CU_STREAM_NON_BLOCKING);
    return result != CUDA_SUCCESS ? result : cuCtxSetCurrent(context);
}

/* green: a green context with stream 2; what it is made of is left to the fake GPU */
static void do_green(char **words) {
    (void)words;
    CUresult result = cuGreenCtxCreate(&green, NULL, 0, 1);
    if (result == CUDA_SUCCESS)
        result = add_green_stream();
    answer(result);
}

/* ungreen: ends that context and leaves its stream */
static void do_ungreen(char **words) {
    (void)words;
    answer(cuGreenCtxDestroy(green));
}

/* enter: makes the green context current */
static void do_enter(char **words) {
    (void)words;
    answer(enter_green());
}

/* leave: makes the primary one current again */
static void do_leave(char **words) {
    (void)words;
    answer(cuCtxSetCurrent(context));
}

/* retain: the primary context once more */
static void do_retain(char **words) {
    CUcontext same;
    (void)words;
    answer(cuDevicePrimaryCtxRetain(&same, 0));
}

/* retain-unseen: the same by the table of the CUDA runtime */
static void do_retain_unseen(char **words) {
    static const char id[] = "\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9";
    const void *table;
    CUcontext same;
    (void)words;
    CUresult result = cuGetExportTable(&table, (const CUuuid *)id);
    if (result == CUDA_SUCCESS)
        result = ((CUresult(*const *)(CUcontext *, CUdevice))table)[2](&same, 0);
    answer(result);
}

/* release: the primary context, which may end it */
static void do_release(char **words) {
    (void)words;
    answer(cuDevicePrimaryCtxRelease(0));
}

/* alloc BYTES: one at a time */
static void do_alloc(char **words) {
    answer(cuMemAlloc(&held, strtoull(words[1], NULL, 10)));
}

/* free STREAM: that memory, when the stream comes to it */
static void do_free(char **words) {
    answer(cuMemFreeAsync(held, stream_of(words[1])));
}

/* free-now: that memory */
static void do_free_now(char **words) {
    (void)words;
    answer(cuMemFree(held));
}

struct errand {
    CUstream stream;
    unsigned microseconds;
    int count;
};

static void *run_errand(void *argument) {
    const struct errand *errand = argument;
    CUresult result = cuCtxSetCurrent(context);
    if (result == 0)
        result = launch_many(errand->stream, errand->microseconds, errand->count);
    return (void *)(intptr_t)result;
}

/* thread STREAM MICROSECONDS COUNT: launches from another thread, and waits for that thread */
static void do_thread(char **words) {
    struct errand errand = {stream_of(words[1]), (unsigned)atoi(words[2]), atoi(words[3])};
    pthread_t thread;
    void *result = NULL;
    pthread_create(&thread, NULL, run_errand, &errand);
    pthread_join(thread, &result);
    answer((CUresult)(intptr_t)result);
}

/* Gives the current context work. */
static CUresult use_current(CUstream stream, unsigned microseconds, int count) {
    CUmodule loaded;
    CUfunction function;
    void *parameters[] = {&microseconds};
    CUresult result = cuModuleLoadData(&loaded, "// any image");
    if (result != CUDA_SUCCESS)
        return result;
    result = cuModuleGetFunction(&function, loaded, "kubeshare_spin_us");
    for (int i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    cuModuleUnload(loaded);
    return result;
}

static CUresult use_a_context(unsigned microseconds) {
    CUcontext own;
    CUresult result = cuCtxCreate(&own, NULL, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = use_current(NULL, microseconds, 1);
    const CUresult destroyed = cuCtxDestroy(own);
    return result != CUDA_SUCCESS ? result : destroyed;
}

/* default MICROSECONDS COUNT: kernels on the default stream of the current context */
static void do_default(char **words) {
    answer(use_current(NULL, (unsigned)atoi(words[1]), atoi(words[2])));
}

/* contexts COUNT MICROSECONDS: so many come, are given work, and go, one after the other */
static void do_contexts(char **words) {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < atoi(words[1]) && result == CUDA_SUCCESS; i++)
        result = use_a_context((unsigned)atoi(words[2]));
    const CUresult back = cuCtxSetCurrent(context);
    answer(result != CUDA_SUCCESS ? result : back);
}

/* CUDA_ERROR_UNKNOWN: so many bytes, which the caller holds, are not counted. */
static CUresult find_counted(size_t bytes) {
    size_t available, total;
    const CUresult result = cuMemGetInfo(&available, &total);
    return result == CUDA_SUCCESS && total - available < bytes ? CUDA_ERROR_UNKNOWN : result;
}

/* What it leaves behind ends with the context. */
static CUresult use_the_primary_context(unsigned microseconds) {
    CUcontext retained;
    CUstream stream;
    CUdeviceptr memory;
    CUresult result = cuDevicePrimaryCtxRetain(&retained, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuCtxSetCurrent(retained);
    if (result == CUDA_SUCCESS)
        result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        result = cuMemAlloc(&memory, 4096);
    if (result == CUDA_SUCCESS)
        result = use_current(stream, microseconds, 1);
    if (result == CUDA_SUCCESS)
        result = find_counted(4096);
    const CUresult released = cuDevicePrimaryCtxRelease(0);
    return result != CUDA_SUCCESS ? result : released;
}

static void *run_primary(void *words) {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < atoi(((char **)words)[2]) && result == CUDA_SUCCESS; i++)
        result = use_the_primary_context((unsigned)atoi(((char **)words)[3]));
    return (void *)(intptr_t)result;
}

/* primary THREADS COUNT MICROSECONDS: so many threads, up to 8, each retain the primary context so
 * often, give it work, see that their memory is counted, and release it */
static void do_primary(char **words) {
    CUresult result = CUDA_SUCCESS;
    pthread_t thread[8];
    const int threads = atoi(words[1]);
    for (int i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, run_primary, words);
    for (int i = 0; i < threads; i++) {
        void *one = NULL;
        pthread_join(thread[i], &one);
        if (one != NULL)
            result = (CUresult)(intptr_t)one;
    }
    answer(result);
}

/* finish STREAM: waits for it */
static void do_finish(char **words) {
    answer(cuStreamSynchronize(stream_of(words[1])));
}

/* sync: the context */
static void do_sync(char **words) {
    (void)words;
    answer(cuCtxSynchronize());
}

static const struct command {
    const char *name;
    int arguments;
    void (*run)(char **words);
} commands[] = {
    {"init",          0, do_init         },
    {"launch",        3, do_launch       },
    {"fault",         1, do_fault        },
    {"begin",         2, do_begin        },
    {"end",           1, do_end          },
    {"graph",         1, do_graph        },
    {"destroy",       1, do_destroy      },
    {"wait",          2, do_wait         },
    {"pass",          2, do_pass         },
    {"green",         0, do_green        },
    {"ungreen",       0, do_ungreen      },
    {"enter",         0, do_enter        },
    {"leave",         0, do_leave        },
    {"retain",        0, do_retain       },
    {"retain-unseen", 0, do_retain_unseen},
    {"release",       0, do_release      },
    {"alloc",         1, do_alloc        },
    {"free",          1, do_free         },
    {"free-now",      0, do_free_now     },
    {"thread",        3, do_thread       },
    {"default",       2, do_default      },
    {"contexts",      2, do_contexts     },
    {"primary",       3, do_primary      },
    {"finish",        1, do_finish       },
    {"sync",          0, do_sync         },
};

static int obey(char *line) {
    char *words[8] = {0};
    int count = 0;
    for (char *token = strtok(line, " \n"); token != NULL && count < 7; token = strtok(NULL, " \n"))
        words[count++] = token;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (count == commands[i].arguments + 1 && strcmp(words[0], commands[i].name) == 0) {
            commands[i].run(words);
            return 0;
        }
    }
    fprintf(stderr, "work: no such command, or too few arguments: %s\n", words[0]);
    return 2;
}

int main(void) {
    char line[128];
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (obey(line) != 0)
            return 2;
    }
    forget_graph();
    return 0;
}

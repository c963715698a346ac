/* The kernels, how fast a GPU is at them, and when they ran. */
#include "burn.h"
#include "spin_ptx.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define WORK_THREADS 256

/* How long the GPU is kept busy before its clock is believed, and the samples of after that. */
#define WARM_UP_SECONDS 1.0
#define SAMPLE_MS       20.0
#define SAMPLES         21

#define NOT_BEGUN UINT64_MAX

struct stamp {
    uint64_t began, ended;
};

/*
 * kubeshare_work(u32 rounds, u64 stamp): so many rounds of eight additions and multiplications that
 * wait for each other, by each thread. Each block's first thread says when it began and ended where
 * there is a stamp. The sum is stored if it is negative, which it never is: else the compiler would
 * leave the rounds out.
 */
static const char work_ptx[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .global .align 4 .f32 kubeshare_sum;\n"
    ".visible .entry kubeshare_work(.param .u32 rounds, .param .u64 stamp)\n"
    "{\n"
    "    .reg .pred %more, %first, %stamped, %never;\n"
    "    .reg .b32 %left, %thread;\n"
    "    .reg .b64 %slot, %time;\n"
    "    .reg .f32 %a, %b;\n"
    "    ld.param.u32 %left, [rounds];\n"
    "    ld.param.u64 %slot, [stamp];\n"
    "    mov.u32 %thread, %tid.x;\n"
    "    setp.eq.u32 %first, %thread, 0;\n"
    "    setp.ne.and.u64 %stamped, %slot, 0, %first;\n"
    "    mov.u64 %time, %globaltimer;\n"
    "    @%stamped red.global.min.u64 [%slot], %time;\n"
    "    cvt.rn.f32.u32 %a, %thread;\n"
    "    mov.f32 %b, 0f3F7FF000;\n"
    "again:\n"
    "    fma.rn.f32 %a, %a, %b, %b;\n"
    "    fma.rn.f32 %a, %a, %b, %b;\n"
    "    fma.rn.f32 %a, %a, %b, %b;\n"
    "    fma.rn.f32 %a, %a, %b, %b;\n"
    "    fma.rn.f32 %a, %a, %b, %b;\n"
    "    fma.rn.f32 %a, %a, %b, %b;\n"
    "    fma.rn.f32 %a, %a, %b, %b;\n"
    "    fma.rn.f32 %a, %a, %b, %b;\n"
    "    sub.u32 %left, %left, 1;\n"
    "    setp.ne.u32 %more, %left, 0;\n"
    "    @%more bra again;\n"
    "    setp.lt.f32 %never, %a, 0f00000000;\n"
    "    @%never st.global.f32 [kubeshare_sum], %a;\n"
    "    bar.sync 0;\n"
    "    mov.u64 %time, %globaltimer;\n"
    "    @%stamped red.global.max.u64 [%slot+8], %time;\n"
    "    ret;\n"
    "}\n";

static int attribute(CUdevice device, CUdevice_attribute name) {
    int value;
    CHECK(cuDeviceGetAttribute(&value, name, device));
    return value;
}

static void prepare_stamps(struct gpu *gpu) {
    struct stamp *empty = malloc(STAMPS_MAX * sizeof *empty);
    if (empty == NULL)
        check(CUDA_ERROR_OUT_OF_MEMORY, "malloc");
    for (size_t i = 0; i < STAMPS_MAX; i++)
        empty[i] = (struct stamp){.began = NOT_BEGUN};
    CHECK(cuMemAlloc(&gpu->stamps, STAMPS_MAX * sizeof *empty));
    CHECK(cuMemcpyHtoD(gpu->stamps, empty, STAMPS_MAX * sizeof *empty));
    free(empty);
}

void load_kernels(const struct options *options, CUdevice device, struct gpu *gpu) {
    CUmodule module;
    if (options->work == 0 && !options->calibrates) {
        CHECK(cuModuleLoadData(&module, spin_ptx));
        CHECK(cuModuleGetFunction(&gpu->spin, module, "kubeshare_spin_us"));
        return;
    }
    CHECK(cuModuleLoadData(&module, work_ptx));
    CHECK(cuModuleGetFunction(&gpu->work, module, "kubeshare_work"));
    const int threads = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    const int processors = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    gpu->blocks = (unsigned)(processors * (threads / WORK_THREADS));
    if (options->stamps != NULL)
        prepare_stamps(gpu);
}

static void launch_work(const struct gpu *gpu, CUstream stream, uint32_t rounds,
                        CUdeviceptr stamp) {
    void *parameters[] = {&rounds, &stamp};
    CHECK(cuLaunchKernel(gpu->work, gpu->blocks, 1, 1, WORK_THREADS, 1, 1, 0, stream, parameters,
                         NULL));
}

static uint32_t whole(double rounds) {
    return rounds < 1 ? 1 : rounds > UINT32_MAX ? UINT32_MAX : (uint32_t)rounds;
}

void launch_kernel(const struct options *options, const struct gpu *gpu, CUstream stream,
                   unsigned long long number) {
    uint32_t microseconds = options->kernel_us;
    void *parameters[] = {&microseconds};
    if (options->work > 0) {
        const bool stamped = gpu->stamps != 0 && number < STAMPS_MAX;
        launch_work(gpu, stream, whole(options->work * microseconds),
                    stamped ? gpu->stamps + number * sizeof(struct stamp) : 0);
    } else {
        CHECK(cuLaunchKernel(gpu->spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    }
}

static double milliseconds(const struct gpu *gpu, uint32_t rounds, const CUevent edges[2]) {
    float taken;
    CHECK(cuEventRecord(edges[0], gpu->streams[0]));
    launch_work(gpu, gpu->streams[0], rounds, 0);
    CHECK(cuEventRecord(edges[1], gpu->streams[0]));
    CHECK(cuEventSynchronize(edges[1]));
    CHECK(cuEventElapsedTime(&taken, edges[0], edges[1]));
    return (double)taken;
}

static int compare(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double calibrate(const struct gpu *gpu) {
    double samples[SAMPLES];
    CUevent edges[2];
    uint32_t rounds = 1000;
    CHECK(cuEventCreate(&edges[0], CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&edges[1], CU_EVENT_DEFAULT));
    for (const double start = now(); now() - start < WARM_UP_SECONDS;)
        if (milliseconds(gpu, rounds, edges) < SAMPLE_MS / 2 && rounds < UINT32_MAX / 2)
            rounds *= 2;
    for (int i = 0; i < SAMPLES; i++)
        samples[i] = rounds / (milliseconds(gpu, rounds, edges) * 1e3);
    qsort(samples, SAMPLES, sizeof *samples, compare);
    return samples[SAMPLES / 2];
}

void write_stamps(const struct options *options, const struct gpu *gpu,
                  unsigned long long kernels) {
    const size_t count = kernels < STAMPS_MAX ? (size_t)kernels : STAMPS_MAX;
    if (options->stamps == NULL || count == 0)
        return;
    struct stamp *stamps = malloc(count * sizeof *stamps);
    FILE *file = fopen(options->stamps, "w");
    if (stamps == NULL || file == NULL) {
        perror(options->stamps);
        exit(1);
    }
    CHECK(cuMemcpyDtoH(stamps, gpu->stamps, count * sizeof *stamps));
    for (size_t i = 0; i < count; i++)
        if (stamps[i].began != NOT_BEGUN)
            fprintf(file, "%" PRIu64 " %" PRIu64 "\n", stamps[i].began, stamps[i].ended);
    fclose(file);
    free(stamps);
}

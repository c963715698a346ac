/* Initialisation, and what concerns no single GPU. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "../engine/release.h"
#include "machine.h"

struct machine machine = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void after_fork_in_child(void) {
    machine.forked = true;
    pthread_mutex_init(&machine.lock, NULL);
}

static void show(unsigned place, uint32_t gpu) {
    machine.devices[place].gpu = gpu;
    for (unsigned mig = 0; mig < MIGS_MAX; mig++)
        machine.migs[place][mig] = (struct nvmlDevice_st){.gpu = gpu, .mig = mig + 1};
}

/* Opens the state where it is not open; again in the child of a fork, which must not share its
 * parent's locks. machine.lock held. */
static nvmlReturn_t open_machine(void) {
    uint32_t present[GPUS_MAX];
    char error[512];
    Dl_info here;
    bool first = machine.engine.state == NULL && !machine.forked;
    if (machine.forked)
        engine_forget(&machine.engine);
    machine.forked = false;
    if (machine.engine.state != NULL)
        return NVML_SUCCESS;
    const char *library = dladdr(&machine, &here) != 0 ? here.dli_fname : "";
    if (!engine_open(&machine.engine, ENGINE_RUN, library, error, sizeof error)) {
        fprintf(stderr, "fakegpu: %s\n", error);
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    machine.device_count = engine_present(&machine.engine, present);
    for (unsigned i = 0; i < machine.device_count; i++)
        show(i, present[i]);
    if (first)
        pthread_atfork(NULL, NULL, after_fork_in_child);
    return NVML_SUCCESS;
}

nvmlReturn_t machine_ready(void) {
    pthread_mutex_lock(&machine.lock);
    nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;
    if (machine.references > 0)
        result = open_machine();
    pthread_mutex_unlock(&machine.lock);
    return result;
}

API nvmlInit_v2(void) {
    pthread_mutex_lock(&machine.lock);
    nvmlReturn_t result = open_machine();
    if (result == NVML_SUCCESS)
        machine.references++;
    pthread_mutex_unlock(&machine.lock);
    return result;
}

API nvmlInit(void) {
    return nvmlInit_v2();
}

/* The flags only name errors to ignore: no GPUs, GPUs that cannot be attached. */
API nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    return nvmlInit_v2();
}

API nvmlShutdown(void) {
    pthread_mutex_lock(&machine.lock);
    bool initialised = machine.references > 0;
    machine.references -= initialised;
    pthread_mutex_unlock(&machine.lock);
    return initialised ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(nvmlReturn_t result) {
    static const struct {
        nvmlReturn_t result;
        const char *sentence;
    } sentences[] = {
        {NVML_SUCCESS,                         "Success"                  },
        {NVML_ERROR_UNINITIALIZED,             "Uninitialized"            },
        {NVML_ERROR_INVALID_ARGUMENT,          "Invalid Argument"         },
        {NVML_ERROR_NOT_SUPPORTED,             "Not Supported"            },
        {NVML_ERROR_NO_PERMISSION,             "Insufficient Permissions" },
        {NVML_ERROR_NOT_FOUND,                 "Not Found"                },
        {NVML_ERROR_INSUFFICIENT_SIZE,         "Insufficient Size"        },
        {NVML_ERROR_DRIVER_NOT_LOADED,         "Driver Not Loaded"        },
        {NVML_ERROR_TIMEOUT,                   "Timeout"                  },
        {NVML_ERROR_FUNCTION_NOT_FOUND,        "Function Not Found"       },
        {NVML_ERROR_GPU_IS_LOST,               "GPU is lost"              },
        {NVML_ERROR_OPERATING_SYSTEM,          "Operating System error"   },
        {NVML_ERROR_MEMORY,                    "Insufficient Memory"      },
        {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
    };
    for (size_t i = 0; i < sizeof sentences / sizeof *sentences; i++)
        if (sentences[i].result == result)
            return sentences[i].sentence;
    return "Unknown Error";
}

nvmlReturn_t answer_text(char *text, unsigned length, const char *value) {
    REQUIRE(text != NULL, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(strlen(value) < length, NVML_ERROR_INSUFFICIENT_SIZE);
    strcpy(text, value);
    return NVML_SUCCESS;
}

/* The driver's branch, also before NVML is initialised. */
static uint32_t branch(void) {
    static struct profile profile;
    char error[512];
    Dl_info here;
    const char *library = dladdr(&machine, &here) != 0 ? here.dli_fname : "";
    pthread_mutex_lock(&machine.lock);
    const bool good = profile_choose(&profile, library, error, sizeof error);
    const uint32_t version = good ? profile.driver_version : NEWEST_DRIVER;
    pthread_mutex_unlock(&machine.lock);
    return version;
}

API nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    char text[32];
    TRY(machine_ready());
    snprintf(text, sizeof text, "%u.%s", branch(), RELEASE);
    return answer_text(version, length, text);
}

API nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    char text[32];
    const uint32_t driver = branch();
    snprintf(text, sizeof text, "%d.%u.%s", release_cuda(driver) / 1000, driver, RELEASE);
    return answer_text(version, length, text);
}

API nvmlSystemGetCudaDriverVersion_v2(int *version) {
    REQUIRE(version != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *version = release_cuda(branch());
    return NVML_SUCCESS;
}

API nvmlSystemGetCudaDriverVersion(int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

API nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
    char path[64];
    char line[256] = "";
    TRY(machine_ready());
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    REQUIRE(file != NULL, NVML_ERROR_NOT_FOUND);
    size_t bytes = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[bytes] = '\0';
    return answer_text(name, length, line);
}

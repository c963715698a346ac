/*
 *   nvidia-smi                                  a table of GPUs and processes
 *   nvidia-smi -L                               a line a GPU, with its UUID
 *   nvidia-smi topo -m                          how the GPUs are joined
 *   nvidia-smi --query-gpu=FIELDS --format=csv[,noheader][,nounits]
 *   nvidia-smi --query-compute-apps=FIELDS --format=csv[,noheader][,nounits]
 *   … -i GPU[,GPU…]                             only these, by index, UUID or bus
 *
 * Exit codes as NVIDIA documents them: 2 wrong use, 6 no such GPU, 9 no driver,
 * 12 no NVML, 15 a GPU is lost.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

#define GPUS_MOST 64u

enum what { TABLE, LIST, TOPOLOGY, QUERY_GPUS, QUERY_PROCESSES };

struct asked {
    enum what what;
    char *fields;
    char *only;
    bool formatted;
    struct format format;
};

struct nvml nvml;

int nvml_start(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "nvidia-smi: there is no libnvidia-ml.so.1 here: %s\n", dlerror());
        return 12;
    }
    bool complete = true;
#define CALL(name, arguments) complete &= (*(void **)&nvml.name = dlsym(library, #name)) != NULL;
    NVML_CALLS(CALL)
    CALL(nvmlErrorString, )
#undef CALL
    if (!complete) {
        fprintf(stderr, "nvidia-smi: this libnvidia-ml.so.1 lacks a call: it is too old\n");
        return 12;
    }
    nvmlReturn_t result = nvml.nvmlInit_v2();
    if (result == NVML_SUCCESS)
        return 0;
    fprintf(stderr, "nvidia-smi: NVML does not start: %s\n", nvml.nvmlErrorString(result));
    return 9;
}

static int wrong_use(const char *what) {
    fprintf(stderr,
            "nvidia-smi: %s\n"
            "usage: nvidia-smi [-i GPU] [-L | topo -m | --query-gpu=FIELDS --format=csv | "
            "--query-compute-apps=FIELDS --format=csv]\n",
            what);
    return 2;
}

/* ---- which GPUs ------------------------------------------------------------------ */

static bool is_chosen(const struct chosen *gpu, const char *only) {
    char list[1024];
    char index[16];
    char *rest;
    if (only == NULL)
        return true;
    snprintf(list, sizeof list, "%s", only);
    snprintf(index, sizeof index, "%u", gpu->index);
    for (char *name = strtok_r(list, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest))
        if (strcmp(name, index) == 0 || strcmp(name, gpu->uuid) == 0 || strcmp(name, gpu->bus) == 0)
            return true;
    return false;
}

static int choose(const char *only, struct chosen gpus[GPUS_MOST], unsigned *count) {
    unsigned all = 0;
    nvmlPciInfo_t pci;
    *count = 0;
    nvml.nvmlDeviceGetCount_v2(&all);
    for (unsigned index = 0; index < all && index < GPUS_MOST; index++) {
        struct chosen *gpu = &gpus[*count];
        nvmlReturn_t result = nvml.nvmlDeviceGetHandleByIndex_v2(index, &gpu->device);
        if (result != NVML_SUCCESS) {
            fprintf(stderr, "nvidia-smi: GPU %u: %s\n", index, nvml.nvmlErrorString(result));
            return result == NVML_ERROR_GPU_IS_LOST ? 15 : 6;
        }
        gpu->index = index;
        nvml.nvmlDeviceGetUUID(gpu->device, gpu->uuid, sizeof gpu->uuid);
        if (nvml.nvmlDeviceGetPciInfo_v3(gpu->device, &pci) == NVML_SUCCESS)
            memcpy(gpu->bus, pci.busId, sizeof gpu->bus);
        *count += is_chosen(gpu, only);
    }
    if (*count > 0)
        return 0;
    if (only == NULL)
        puts("No devices were found");
    else
        printf("No devices were found: there is no GPU %s\n", only);
    return 6;
}

/* ---- what is asked ------------------------------------------------------------------ */

static bool read_format(char *text, struct asked *asked) {
    char *rest;
    for (char *word = strtok_r(text, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        if (strcmp(word, "csv") == 0)
            asked->formatted = true;
        else if (strcmp(word, "noheader") == 0)
            asked->format.header = false;
        else if (strcmp(word, "nounits") == 0)
            asked->format.units = false;
        else
            return false;
    }
    return true;
}

/* The value of --name=value or --name value; NULL when the argument is another. */
static char *value_of(const char *name, char **arguments, int *at) {
    size_t length = strlen(name);
    if (strncmp(arguments[*at], name, length) != 0)
        return NULL;
    if (arguments[*at][length] == '=')
        return arguments[*at] + length + 1;
    return arguments[*at][length] == '\0' ? arguments[++*at] : NULL;
}

static int read_arguments(char **arguments, struct asked *asked) {
    for (int at = 1; arguments[at] != NULL; at++) {
        char *value;
        if (strcmp(arguments[at], "-L") == 0 || strcmp(arguments[at], "--list-gpus") == 0) {
            asked->what = LIST;
        } else if (strcmp(arguments[at], "topo") == 0 && arguments[at + 1] != NULL &&
                   (strcmp(arguments[at + 1], "-m") == 0 ||
                    strcmp(arguments[at + 1], "--matrix") == 0)) {
            asked->what = TOPOLOGY;
            at++;
        } else if ((value = value_of("--query-gpu", arguments, &at)) != NULL) {
            asked->what = QUERY_GPUS;
            asked->fields = value;
        } else if ((value = value_of("--query-compute-apps", arguments, &at)) != NULL) {
            asked->what = QUERY_PROCESSES;
            asked->fields = value;
        } else if ((value = value_of("--format", arguments, &at)) != NULL) {
            if (!read_format(value, asked))
                return wrong_use("a format is csv, with noheader and nounits if you like");
        } else if ((value = value_of("-i", arguments, &at)) != NULL ||
                   (value = value_of("--id", arguments, &at)) != NULL) {
            asked->only = value;
        } else {
            return wrong_use("that is no option of this nvidia-smi, or it lacks its value");
        }
    }
    if (asked->fields != NULL && !asked->formatted)
        return wrong_use("a query needs --format=csv");
    return 0;
}

int main(int count, char **arguments) {
    struct asked asked = {
        .what = TABLE, .format = {true, true}
    };
    struct chosen gpus[GPUS_MOST];
    unsigned chosen;
    (void)count;
    int code = read_arguments(arguments, &asked);
    if (code == 0)
        code = nvml_start();
    if (code == 0)
        code = choose(asked.only, gpus, &chosen);
    if (code != 0)
        return code;
    switch (asked.what) {
    case LIST:
        return print_list(gpus, chosen);
    case TOPOLOGY:
        return print_topology(gpus, chosen);
    case QUERY_GPUS:
    case QUERY_PROCESSES:
        return query(gpus, chosen, asked.what == QUERY_PROCESSES, asked.fields, asked.format);
    default:
        return print_table(gpus, chosen);
    }
}

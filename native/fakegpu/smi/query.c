/* Queries: a line of values for each GPU or process, separated by commas. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "calls.h"

#define FIELDS_MOST 64u
#define MIB         (1ull << 20)

static const char not_available[] = "[N/A]";

/* One row's subject. */
struct row {
    const struct chosen *gpu;
    const nvmlProcessInfo_t *process; /* NULL: the GPU itself */
};

/* Writes a value without its unit; false where there is none. */
typedef bool value_fn(const struct row *row, char *value, size_t size);

struct field {
    const char *name, *alias, *unit;
    value_fn *value;
};

/* ---- values of a GPU ------------------------------------------------------------------ */

static bool text(char *value, size_t size, const char *from) {
    snprintf(value, size, "%s", from);
    return true;
}

static bool number(char *value, size_t size, unsigned long long from) {
    snprintf(value, size, "%llu", from);
    return true;
}

static bool gpu_index(const struct row *row, char *value, size_t size) {
    return number(value, size, row->gpu->index);
}

static bool gpu_count(const struct row *row, char *value, size_t size) {
    unsigned count = 0;
    (void)row;
    return nvml.nvmlDeviceGetCount_v2(&count) == NVML_SUCCESS && number(value, size, count);
}

static bool gpu_name(const struct row *row, char *value, size_t size) {
    return nvml.nvmlDeviceGetName(row->gpu->device, value, (unsigned)size) == NVML_SUCCESS;
}

static bool gpu_uuid(const struct row *row, char *value, size_t size) {
    return text(value, size, row->gpu->uuid);
}

static bool gpu_bus(const struct row *row, char *value, size_t size) {
    return text(value, size, row->gpu->bus);
}

static bool driver_version(const struct row *row, char *value, size_t size) {
    (void)row;
    return nvml.nvmlSystemGetDriverVersion(value, (unsigned)size) == NVML_SUCCESS;
}

static bool timestamp(const struct row *row, char *value, size_t size) {
    struct timespec now;
    struct tm local;
    (void)row;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    size_t length = strftime(value, size, "%Y/%m/%d %H:%M:%S", &local);
    snprintf(value + length, size - length, ".%03ld", now.tv_nsec / 1000000);
    return true;
}

static bool memory(const struct row *row, char *value, size_t size, int which) {
    nvmlMemory_t info;
    if (nvml.nvmlDeviceGetMemoryInfo(row->gpu->device, &info) != NVML_SUCCESS)
        return false;
    return number(value, size,
                  (which == 0   ? info.total
                   : which == 1 ? info.used
                                : info.free) /
                      MIB);
}

static bool memory_total(const struct row *row, char *value, size_t size) {
    return memory(row, value, size, 0);
}

static bool memory_used(const struct row *row, char *value, size_t size) {
    return memory(row, value, size, 1);
}

static bool memory_free(const struct row *row, char *value, size_t size) {
    return memory(row, value, size, 2);
}

static bool utilization_gpu(const struct row *row, char *value, size_t size) {
    nvmlUtilization_t rates;
    return nvml.nvmlDeviceGetUtilizationRates(row->gpu->device, &rates) == NVML_SUCCESS &&
           number(value, size, rates.gpu);
}

static bool utilization_memory(const struct row *row, char *value, size_t size) {
    nvmlUtilization_t rates;
    return nvml.nvmlDeviceGetUtilizationRates(row->gpu->device, &rates) == NVML_SUCCESS &&
           number(value, size, rates.memory);
}

static bool compute_mode(const struct row *row, char *value, size_t size) {
    static const char *const modes[] = {"Default", "Exclusive_Thread", "Prohibited",
                                        "Exclusive_Process"};
    nvmlComputeMode_t mode;
    return nvml.nvmlDeviceGetComputeMode(row->gpu->device, &mode) == NVML_SUCCESS &&
           (unsigned)mode < 4 && text(value, size, modes[mode]);
}

static bool persistence_mode(const struct row *row, char *value, size_t size) {
    nvmlEnableState_t mode;
    return nvml.nvmlDeviceGetPersistenceMode(row->gpu->device, &mode) == NVML_SUCCESS &&
           text(value, size, mode == NVML_FEATURE_ENABLED ? "Enabled" : "Disabled");
}

static bool mig_mode(const struct row *row, char *value, size_t size) {
    unsigned now, then;
    return nvml.nvmlDeviceGetMigMode(row->gpu->device, &now, &then) == NVML_SUCCESS &&
           text(value, size, now != 0 ? "Enabled" : "Disabled");
}

static bool compute_capability(const struct row *row, char *value, size_t size) {
    int major, minor;
    if (nvml.nvmlDeviceGetCudaComputeCapability(row->gpu->device, &major, &minor) != NVML_SUCCESS)
        return false;
    snprintf(value, size, "%d.%d", major, minor);
    return true;
}

/* What a fake GPU does not have. */
static bool nothing(const struct row *row, char *value, size_t size) {
    (void)row, (void)value, (void)size;
    return false;
}

static const struct field gpu_fields[] = {
    {"timestamp",          NULL,         NULL,  timestamp         },
    {"driver_version",     NULL,         NULL,  driver_version    },
    {"count",              NULL,         NULL,  gpu_count         },
    {"index",              NULL,         NULL,  gpu_index         },
    {"name",               "gpu_name",   NULL,  gpu_name          },
    {"uuid",               "gpu_uuid",   NULL,  gpu_uuid          },
    {"pci.bus_id",         "gpu_bus_id", NULL,  gpu_bus           },
    {"memory.total",       NULL,         "MiB", memory_total      },
    {"memory.used",        NULL,         "MiB", memory_used       },
    {"memory.free",        NULL,         "MiB", memory_free       },
    {"utilization.gpu",    NULL,         "%",   utilization_gpu   },
    {"utilization.memory", NULL,         "%",   utilization_memory},
    {"compute_mode",       NULL,         NULL,  compute_mode      },
    {"compute_cap",        NULL,         NULL,  compute_capability},
    {"persistence_mode",   NULL,         NULL,  persistence_mode  },
    {"mig.mode.current",   NULL,         NULL,  mig_mode          },
    {"mig.mode.pending",   NULL,         NULL,  mig_mode          },
    {"serial",             "gpu_serial", NULL,  nothing           },
    {"pstate",             NULL,         NULL,  nothing           },
    {"fan.speed",          NULL,         "%",   nothing           },
    {"temperature.gpu",    NULL,         NULL,  nothing           },
    {"power.draw",         NULL,         "W",   nothing           },
    {"power.limit",        NULL,         "W",   nothing           },
    {"clocks.sm",          NULL,         "MHz", nothing           },
    {"clocks.mem",         NULL,         "MHz", nothing           },
    {"ecc.mode.current",   NULL,         NULL,  nothing           },
    {NULL,                 NULL,         NULL,  NULL              },
};

/* ---- values of a process ---------------------------------------------------------------- */

static bool pid(const struct row *row, char *value, size_t size) {
    return number(value, size, row->process->pid);
}

static bool program(const struct row *row, char *value, size_t size) {
    process_name(row->process->pid, value, size);
    return true;
}

static bool used_memory(const struct row *row, char *value, size_t size) {
    return number(value, size, row->process->usedGpuMemory / MIB);
}

static const struct field process_fields[] = {
    {"pid",             NULL,          NULL,  pid        },
    {"process_name",    "name",        NULL,  program    },
    {"used_gpu_memory", "used_memory", "MiB", used_memory},
    {"gpu_uuid",        NULL,          NULL,  gpu_uuid   },
    {"gpu_name",        NULL,          NULL,  gpu_name   },
    {"gpu_bus_id",      NULL,          NULL,  gpu_bus    },
    {"gpu_serial",      NULL,          NULL,  nothing    },
    {"timestamp",       NULL,          NULL,  timestamp  },
    {NULL,              NULL,          NULL,  NULL       },
};

/* ---- columns ------------------------------------------------------------------------------ */

struct columns {
    const struct field *field[FIELDS_MOST];
    const char *asked[FIELDS_MOST];
    unsigned count;
};

static const struct field *find(const struct field *fields, const char *name) {
    for (; fields->name != NULL; fields++)
        if (strcmp(fields->name, name) == 0 ||
            (fields->alias != NULL && strcmp(fields->alias, name) == 0))
            return fields;
    return NULL;
}

static bool read_columns(struct columns *columns, const struct field *fields, char *text_list) {
    char *rest;
    columns->count = 0;
    for (char *name = strtok_r(text_list, ", ", &rest); name != NULL;
         name = strtok_r(NULL, ", ", &rest)) {
        const struct field *field = find(fields, name);
        if (field == NULL || columns->count == FIELDS_MOST) {
            printf("Field \"%s\" is not a valid field to query.\n", name);
            return false;
        }
        columns->asked[columns->count] = name;
        columns->field[columns->count++] = field;
    }
    return columns->count > 0;
}

static void print_header(const struct columns *columns) {
    for (unsigned i = 0; i < columns->count; i++) {
        const char *unit = columns->field[i]->unit;
        printf("%s%s", i == 0 ? "" : ", ", columns->asked[i]);
        if (unit != NULL)
            printf(" [%s]", unit);
    }
    putchar('\n');
}

static void print_row(const struct columns *columns, const struct row *row, bool units) {
    char value[256];
    for (unsigned i = 0; i < columns->count; i++) {
        bool known = columns->field[i]->value(row, value, sizeof value);
        const char *unit = columns->field[i]->unit;
        printf("%s%s", i == 0 ? "" : ", ", known ? value : not_available);
        if (known && units && unit != NULL)
            printf(" %s", unit);
    }
    putchar('\n');
}

int query_gpus(const struct chosen *gpus, unsigned count, char *fields, struct format format) {
    struct columns columns;
    if (!read_columns(&columns, gpu_fields, fields))
        return 2;
    if (format.header)
        print_header(&columns);
    for (unsigned i = 0; i < count; i++)
        print_row(&columns, &(struct row){&gpus[i], NULL}, format.units);
    return 0;
}

int query_processes(const struct chosen *gpus, unsigned count, char *fields, struct format format) {
    nvmlProcessInfo_t infos[PROCESSES_MOST];
    struct columns columns;
    if (!read_columns(&columns, process_fields, fields))
        return 2;
    if (format.header)
        print_header(&columns);
    for (unsigned i = 0; i < count; i++) {
        unsigned processes = processes_of(gpus[i].device, infos);
        for (unsigned j = 0; j < processes; j++)
            print_row(&columns, &(struct row){&gpus[i], &infos[j]}, format.units);
    }
    return 0;
}

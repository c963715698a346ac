/* Queries: a line of values for each GPU or process, separated by commas. */
#include <stdio.h>
#include <string.h>

#include "calls.h"

#define FIELDS_MOST 32u
#define MIB         (1ull << 20)

/* One row's subject. */
struct row {
    const struct chosen *gpu;
    const nvmlProcessInfo_t *process; /* NULL: the GPU itself */
};

/* Writes a value without its unit; false where there is none. */
#define VALUE(name)                                                                                \
    static bool name(__attribute__((unused)) const struct row *row,                                \
                     __attribute__((unused)) char *value, __attribute__((unused)) size_t size)

struct field {
    const char *name, *unit;
    bool (*value)(const struct row *row, char *value, size_t size);
};

static bool print(char *value, size_t size, unsigned long long number) {
    snprintf(value, size, "%llu", number);
    return true;
}

/* ---- values ------------------------------------------------------------------------- */

VALUE(gpu_index) {
    return print(value, size, row->gpu->index);
}

VALUE(gpu_name) {
    return nvml.nvmlDeviceGetName(row->gpu->device, value, (unsigned)size) == NVML_SUCCESS;
}

VALUE(gpu_uuid) {
    snprintf(value, size, "%s", row->gpu->uuid);
    return true;
}

VALUE(memory_total) {
    nvmlMemory_t memory;
    return nvml.nvmlDeviceGetMemoryInfo(row->gpu->device, &memory) == NVML_SUCCESS &&
           print(value, size, memory.total / MIB);
}

VALUE(memory_used) {
    nvmlMemory_t memory;
    return nvml.nvmlDeviceGetMemoryInfo(row->gpu->device, &memory) == NVML_SUCCESS &&
           print(value, size, memory.used / MIB);
}

VALUE(utilization) {
    nvmlUtilization_t rates;
    return nvml.nvmlDeviceGetUtilizationRates(row->gpu->device, &rates) == NVML_SUCCESS &&
           print(value, size, rates.gpu);
}

VALUE(compute_mode) {
    static const char *const modes[] = {"Default", "Exclusive_Thread", "Prohibited",
                                        "Exclusive_Process"};
    nvmlComputeMode_t mode;
    return nvml.nvmlDeviceGetComputeMode(row->gpu->device, &mode) == NVML_SUCCESS &&
           (unsigned)mode < 4 && snprintf(value, size, "%s", modes[mode]) > 0;
}

VALUE(mig_mode) {
    unsigned now, next;
    return nvml.nvmlDeviceGetMigMode(row->gpu->device, &now, &next) == NVML_SUCCESS &&
           snprintf(value, size, "%s", now != 0 ? "Enabled" : "Disabled") > 0;
}

VALUE(compute_capability) {
    int major, minor;
    return nvml.nvmlDeviceGetCudaComputeCapability(row->gpu->device, &major, &minor) ==
               NVML_SUCCESS &&
           snprintf(value, size, "%d.%d", major, minor) > 0;
}

VALUE(nothing) {
    return false; /* what a fake GPU does not have */
}

VALUE(pid) {
    return print(value, size, row->process->pid);
}

VALUE(program) {
    process_name(row->process->pid, value, size);
    return true;
}

VALUE(used_memory) {
    return print(value, size, row->process->usedGpuMemory / MIB);
}

static const struct field gpu_fields[] = {
    {"index",            NULL,  gpu_index         },
    {"name",             NULL,  gpu_name          },
    {"uuid",             NULL,  gpu_uuid          },
    {"memory.total",     "MiB", memory_total      },
    {"memory.used",      "MiB", memory_used       },
    {"utilization.gpu",  "%",   utilization       },
    {"compute_mode",     NULL,  compute_mode      },
    {"compute_cap",      NULL,  compute_capability},
    {"mig.mode.current", NULL,  mig_mode          },
    {"power.draw",       "W",   nothing           },
    {NULL,               NULL,  NULL              },
};

static const struct field process_fields[] = {
    {"pid",          NULL,  pid        },
    {"process_name", NULL,  program    },
    {"used_memory",  "MiB", used_memory},
    {"gpu_uuid",     NULL,  gpu_uuid   },
    {NULL,           NULL,  NULL       },
};

/* ---- columns ------------------------------------------------------------------------- */

struct columns {
    const struct field *field[FIELDS_MOST];
    unsigned count;
};

static bool read_columns(struct columns *columns, const struct field *fields, char *list) {
    char *rest;
    columns->count = 0;
    for (char *name = strtok_r(list, ", ", &rest); name != NULL;
         name = strtok_r(NULL, ", ", &rest)) {
        const struct field *field = fields;
        while (field->name != NULL && strcmp(field->name, name) != 0)
            field++;
        if (field->name == NULL || columns->count == FIELDS_MOST) {
            printf("Field \"%s\" is not a valid field to query.\n", name);
            return false;
        }
        columns->field[columns->count++] = field;
    }
    return columns->count > 0;
}

static void print_header(const struct columns *columns) {
    for (unsigned i = 0; i < columns->count; i++) {
        const struct field *field = columns->field[i];
        printf("%s%s", i == 0 ? "" : ", ", field->name);
        if (field->unit != NULL)
            printf(" [%s]", field->unit);
    }
    putchar('\n');
}

static void print_row(const struct columns *columns, const struct row *row, bool units) {
    char value[256];
    for (unsigned i = 0; i < columns->count; i++) {
        const struct field *field = columns->field[i];
        bool known = field->value(row, value, sizeof value);
        printf("%s%s", i == 0 ? "" : ", ", known ? value : "[N/A]");
        if (known && units && field->unit != NULL)
            printf(" %s", field->unit);
    }
    putchar('\n');
}

static void print_processes(const struct columns *columns, const struct chosen *gpu, bool units) {
    nvmlProcessInfo_t infos[PROCESSES_MOST];
    unsigned count = processes_of(gpu->device, infos);
    for (unsigned i = 0; i < count; i++)
        print_row(columns, &(struct row){gpu, &infos[i]}, units);
}

int query(const struct chosen *gpus, unsigned count, bool processes, char *fields,
          struct format format) {
    struct columns columns;
    if (!read_columns(&columns, processes ? process_fields : gpu_fields, fields))
        return 2;
    if (format.header)
        print_header(&columns);
    for (unsigned i = 0; i < count; i++) {
        if (processes)
            print_processes(&columns, &gpus[i], format.units);
        else
            print_row(&columns, &(struct row){&gpus[i], NULL}, format.units);
    }
    return 0;
}

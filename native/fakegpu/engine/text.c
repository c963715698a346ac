#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "models.h"
#include "release.h"

/* The position in the text, and where to write an error about it. */
struct place {
    const char *file;
    unsigned line;
    const char *key;
    char *error;
    size_t size;
};

/* Says what is wrong, with file and line; always false. */
__attribute__((format(printf, 2, 3))) static bool fail(const struct place *place,
                                                       const char *format, ...) {
    char message[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    snprintf(place->error, place->size, "%s:%u: %s", place->file, place->line, message);
    return false;
}

bool profile_number(const char *text, unsigned long least, unsigned long most,
                    unsigned long *value) {
    char *end;
    errno = 0;
    *value = strtoul(text, &end, 10);
    return isdigit((unsigned char)*text) && *end == '\0' && errno == 0 && *value >= least &&
           *value <= most;
}

static bool parse_link(const char *text, enum path *path, uint8_t *nvlinks) {
    static const struct {
        const char *name;
        enum path path;
    } paths[] = {
        {"PIX",  PATH_PIX },
        {"PXB",  PATH_PXB },
        {"PHB",  PATH_PHB },
        {"NODE", PATH_NODE},
        {"SYS",  PATH_SYS }
    };
    unsigned long links;
    if (strncmp(text, "NV", 2) == 0 && profile_number(text + 2, 1, 18, &links)) {
        *nvlinks = (uint8_t)links;
        return true;
    }
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        if (strcmp(text, paths[i].name) == 0) {
            *path = paths[i].path;
            *nvlinks = 0;
            return true;
        }
    }
    return false;
}

static bool wrong_value(const struct place *place, const char *value, const char *wanted) {
    return fail(place, "%s = %s: expected %s", place->key, value, wanted);
}

#define WANTED_LINK "NV1 to NV18, PIX, PXB, PHB, NODE or SYS"

static bool set_link(struct profile *profile, const struct place *place, const char *value) {
    enum path path;
    uint8_t nvlinks;
    unsigned a, b;
    char rest;
    if (strcmp(place->key, "link") == 0) {
        for (a = 0; a < GPUS_MAX; a++) {
            for (b = 0; b < a; b++) {
                path = profile->path[a][b];
                if (!parse_link(value, &path, &nvlinks))
                    return wrong_value(place, value, WANTED_LINK);
                profile_set_pair(profile, a, b, path, nvlinks);
            }
        }
        return true;
    }
    bool pci = strncmp(place->key, "pci.", 4) == 0;
    if (sscanf(place->key + (pci ? 3 : 4), ".%u.%u%c", &a, &b, &rest) != 2 || a >= GPUS_MAX ||
        b >= GPUS_MAX || a == b)
        return fail(place, "%s: expected two GPUs, as in link.0.1", place->key);
    path = profile->path[a][b];
    nvlinks = profile->nvlinks[a][b];
    uint8_t linked = nvlinks;
    if (!parse_link(value, &path, &nvlinks) || (pci && nvlinks != 0 && nvlinks != linked))
        return wrong_value(place, value, WANTED_LINK);
    profile_set_pair(profile, a, b, path, pci ? linked : nvlinks);
    return true;
}

static bool set_text(char *field, size_t size, const struct place *place, const char *value) {
    if (strlen(value) >= size)
        return wrong_value(place, value, "a shorter text");
    strcpy(field, value);
    return true;
}

static bool set_state(struct profile *profile, const struct place *place, const char *value) {
    const char *slash = strrchr(place->file, '/');
    int folder = value[0] == '/' || slash == NULL ? 0 : (int)(slash - place->file + 1);
    int length =
        snprintf(profile->state, sizeof profile->state, "%.*s%s", folder, place->file, value);
    return (length >= 0 && (size_t)length < sizeof profile->state) ||
           wrong_value(place, value, "a shorter path");
}

static bool set_fault(struct profile *profile, const struct place *place, const char *value) {
    unsigned index;
    unsigned long parsed;
    char what[16];
    char rest;
    if (sscanf(place->key, "fault.%u.%15[a-z_]%c", &index, what, &rest) != 2 || index >= GPUS_MAX)
        return fail(place, "%s: expected a GPU and what goes wrong, as in fault.0.xid", place->key);
    struct fault *fault = &profile->faults[index];
    uint32_t *field = strcmp(what, "xid") == 0          ? &fault->xid
                      : strcmp(what, "after_ms") == 0   ? &fault->after_ms
                      : strcmp(what, "allocation") == 0 ? &fault->allocation
                      : strcmp(what, "memory") == 0     ? &fault->memory
                                                        : NULL;
    if (field == NULL)
        return fail(place, "unknown key %s", place->key);
    if (!profile_number(value, 0, 1000000, &parsed))
        return wrong_value(place, value, "a number from 0 to 1000000");
    *field = (uint32_t)parsed;
    return true;
}

static bool set_compute_mode(struct profile *profile, const struct place *place,
                             const char *value) {
    static const char *const modes[] = {"default", NULL, "prohibited", "exclusive_process"};
    for (uint32_t mode = 0; mode < sizeof modes / sizeof *modes; mode++) {
        if (modes[mode] != NULL && strcmp(modes[mode], value) == 0) {
            profile->compute_mode = mode;
            return true;
        }
    }
    return wrong_value(place, value, "default, exclusive_process or prohibited");
}

static bool set_lock(struct profile *profile, const struct place *place, const char *value) {
    static const char *const locks[] = {"none", "context", "process"};
    struct costs *costs = &profile->costs;
    const char *call = place->key + strlen("lock.");
    struct cost *cost = strcmp(call, "launch") == 0           ? &costs->launch
                        : strcmp(call, "event_record") == 0   ? &costs->event_record
                        : strcmp(call, "event_query") == 0    ? &costs->event_query
                        : strcmp(call, "context_retain") == 0 ? &costs->context_retain
                                                              : NULL;
    if (cost == NULL)
        return fail(place, "unknown key %s", place->key);
    for (unsigned lock = 0; lock < sizeof locks / sizeof *locks; lock++) {
        if (strcmp(locks[lock], value) == 0) {
            cost->lock = (enum call_lock)lock;
            return true;
        }
    }
    return wrong_value(place, value, "none, context or process");
}

static bool set_numbered(struct profile *profile, const struct place *place, const char *value) {
    unsigned index;
    unsigned long node;
    char rest;
    if (sscanf(place->key, "mig.%u%c", &index, &rest) == 1 && index < GPUS_MAX) {
        if (!profile_number(value, 0, MIGS_MAX, &node))
            return wrong_value(place, value, "a number of MIG devices from 0 to 7");
        profile->migs[index] = (uint32_t)node;
        return true;
    }
    if (sscanf(place->key, "numa.%u%c", &index, &rest) == 1 && index < GPUS_MAX) {
        if (!profile_number(value, 0, NUMA_NODES_MAX - 1, &node))
            return wrong_value(place, value, "a NUMA node from 0 to 7");
        profile->numa[index] = (uint8_t)node;
        return true;
    }
    if (sscanf(place->key, "cpus.%u%c", &index, &rest) == 1 && index < NUMA_NODES_MAX)
        return set_text(profile->cpus[index], sizeof profile->cpus[index], place, value);
    return fail(place, "unknown key %s", place->key);
}

static bool set_mib(uint64_t *field, const struct place *place, const char *value) {
    unsigned long parsed;
    if (!profile_number(value, 0, 1UL << 24, &parsed))
        return wrong_value(place, value, "a number of MiB");
    *field = parsed;
    return true;
}

/* The keys whose values are numbers, each in a field of 32 bits. */
static const struct number {
    const char *key;
    size_t offset;
    uint32_t least, most;
    const char *wanted;
} numbers[] = {
#define FIELD(key, field, least, most, wanted)                                                     \
    {key, offsetof(struct profile, field), least, most, wanted}
#define SPEED(name, field)                                                                         \
    FIELD("speed." name, speeds.field, 0, 10000000, "MB/s from 0 to 10000000")
#define COST(name)                                                                                 \
    FIELD("cost." #name, costs.name.time_us, 0, 1000000, "microseconds from 0 to 1000000")
    COST(launch),
    COST(event_record),
    COST(event_query),
    COST(context_retain),
    FIELD("driver_version", driver_version, OLDEST_DRIVER, NEWEST_DRIVER,
          "a branch of the driver from 525 to 615"),
    FIELD("hardware_queues", hardware_queues, 0, QUEUES_MAX, "a number of queues from 0 to 32"),
    FIELD("kernel_us", kernel_us, 1, 60000000, "microseconds from 1 to 60000000"),
    FIELD("mps", mps, 0, 1, "0 or 1"),
    FIELD("nvswitch", nvswitch, 0, 1, "0 or 1"),
    FIELD("sync_us", sync_us, 0, 60000000, "microseconds from 0 to 60000000"),
    SPEED("host", host),
    SPEED("copy", copy),
    SPEED("fill", fill),
    SPEED("NV", nvlink),
    SPEED("PIX", path[PATH_PIX / 10]),
    SPEED("PXB", path[PATH_PXB / 10]),
    SPEED("PHB", path[PATH_PHB / 10]),
    SPEED("NODE", path[PATH_NODE / 10]),
    SPEED("SYS", path[PATH_SYS / 10]),
#undef COST
#undef SPEED
#undef FIELD
};

static const struct number *find_number(const char *key) {
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].key, key) == 0)
            return &numbers[i];
    return NULL;
}

static bool set_field(struct profile *profile, const struct number *number,
                      const struct place *place, const char *value) {
    unsigned long parsed;
    if (!profile_number(value, number->least, number->most, &parsed))
        return wrong_value(place, value, number->wanted);
    *(uint32_t *)(void *)((char *)profile + number->offset) = (uint32_t)parsed;
    return true;
}

/* Whether a key is about all GPUs, as `memory`, or about one of them, as `memory.2`. */
static bool names_gpus(const char *key, const char *what, unsigned *first, unsigned *end) {
    size_t length = strlen(what);
    char rest;
    if (strncmp(key, what, length) != 0)
        return false;
    *first = 0;
    *end = GPUS_MAX;
    if (key[length] == '\0')
        return true;
    if (sscanf(key + length, ".%u%c", first, &rest) != 1 || *first >= GPUS_MAX)
        return false;
    *end = *first + 1;
    return true;
}

static bool set_names(struct profile *profile, const struct place *place, const char *value,
                      unsigned first, unsigned end) {
    for (unsigned gpu = first; gpu < end; gpu++)
        if (!set_text(profile->models[gpu].name, sizeof profile->models[gpu].name, place, value))
            return false;
    return true;
}

static bool set(struct profile *profile, const struct place *place, const char *value) {
    unsigned long parsed;
    unsigned first, end;
    if (names_gpus(place->key, "model", &first, &end)) {
        if (!profile_use_model(profile, value, first, end))
            return wrong_value(place, value, "a model known here: V100, V100-PCIE, H100");
        profile_use_usual_topology(profile);
        return true;
    }
    if (names_gpus(place->key, "name", &first, &end))
        return set_names(profile, place, value, first, end);
    if (strcmp(place->key, "count") == 0) {
        if (!profile_number(value, 1, GPUS_MAX, &parsed))
            return wrong_value(place, value, "a number from 1 to 16");
        profile->gpus = (unsigned)parsed;
        profile_use_usual_topology(profile);
        return true;
    }
    if (names_gpus(place->key, "memory", &first, &end)) {
        if (!profile_number(value, 1, 1UL << 24, &parsed))
            return wrong_value(place, value, "a number of MiB");
        for (; first < end; first++)
            profile->models[first].memory_bytes = (uint64_t)parsed << 20;
        return true;
    }
    const struct number *number = find_number(place->key);
    if (number != NULL)
        return set_field(profile, number, place, value);
    if (strcmp(place->key, "context_memory") == 0)
        return set_mib(&profile->context_mib, place, value);
    if (strcmp(place->key, "module_memory") == 0)
        return set_mib(&profile->module_mib, place, value);
    if (strcmp(place->key, "stream_memory") == 0)
        return set_mib(&profile->stream_mib, place, value);
    if (strcmp(place->key, "seed") == 0)
        return set_text(profile->seed, sizeof profile->seed, place, value);
    if (strcmp(place->key, "state") == 0)
        return set_state(profile, place, value);
    if (strcmp(place->key, "link") == 0 || strncmp(place->key, "link.", 5) == 0 ||
        strncmp(place->key, "pci.", 4) == 0)
        return set_link(profile, place, value);
    if (strcmp(place->key, "compute_mode") == 0)
        return set_compute_mode(profile, place, value);
    if (strncmp(place->key, "lock.", 5) == 0)
        return set_lock(profile, place, value);
    if (strncmp(place->key, "fault.", 6) == 0)
        return set_fault(profile, place, value);
    return set_numbered(profile, place, value);
}

static char *trim(char *text) {
    while (isspace((unsigned char)*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        end--;
    *end = '\0';
    return text;
}

bool profile_read_text(struct profile *profile, FILE *file, const char *path, char *error,
                       size_t size) {
    char line[4352];
    struct place place = {.file = path, .error = error, .size = size};
    profile_use_defaults(profile);
    while (fgets(line, sizeof line, file) != NULL) {
        place.line++;
        line[strcspn(line, "#")] = '\0';
        char *key = trim(line);
        if (*key == '\0')
            continue;
        char *equals = strchr(key, '=');
        if (equals == NULL)
            return fail(&place, "expected key = value");
        *equals = '\0';
        place.key = trim(key);
        if (!set(profile, &place, trim(equals + 1)))
            return false;
    }
    return true;
}

#include "profile.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct model models[] = {
    {"V100",      "Tesla V100-SXM2-16GB", UINT64_C(16) << 30, 7, 0, 80, 1530000, 877000, 4096, 6 << 20,
     0x1db110de,                                                                                                    true },
    {"V100-PCIE", "Tesla V100-PCIE-16GB", UINT64_C(16) << 30, 7, 0, 80, 1380000, 877000, 4096,
     6 << 20,                                                                                           0x1db410de, false},
    {NULL,        "",                     0,                  0, 0, 0,  0,       0,      0,    0,       0,          false},
};

const struct model *profile_models(void) {
    return models;
}

__attribute__((format(printf, 3, 4))) static bool fail(char *error, size_t size, const char *format,
                                                       ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, size, format, arguments);
    va_end(arguments);
    return false;
}

static bool use_model(struct profile *profile, const char *key) {
    for (const struct model *model = models; model->key != NULL; model++) {
        if (strcmp(model->key, key) == 0) {
            profile->model = *model;
            return true;
        }
    }
    return false;
}

static void set_pair(struct profile *profile, unsigned a, unsigned b, enum path path,
                     uint8_t nvlinks) {
    profile->path[a][b] = profile->path[b][a] = path;
    profile->nvlinks[a][b] = profile->nvlinks[b][a] = nvlinks;
}

/* The board of an SXM2 machine: quads joined by NVLink, two GPUs a PCI switch, half of them a
 * socket. PCIe cards: the same without NVLink. */
static void use_usual_topology(struct profile *profile) {
    unsigned half = (profile->gpus + 1) / 2;
    for (unsigned a = 0; a < profile->gpus; a++) {
        profile->numa[a] = profile->gpus > 1 && a >= half;
        for (unsigned b = 0; b < a; b++) {
            enum path path = a / 2 == b / 2                         ? PATH_PIX
                             : profile->numa[a] == profile->numa[b] ? PATH_PHB
                                                                    : PATH_SYS;
            set_pair(profile, a, b, path, profile->model.nvlink && a / 4 == b / 4 ? 2 : 0);
        }
    }
}

static void use_defaults(struct profile *profile) {
    memset(profile, 0, sizeof *profile);
    use_model(profile, "V100");
    profile->gpus = 1;
    profile->kernel_us = 10;
}

/* ---- text ------------------------------------------------------------- */

struct place {
    const char *file;
    unsigned line;
    const char *key;
    char *error;
    size_t size;
};

static bool number(const char *text, unsigned long least, unsigned long most,
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
    if (strncmp(text, "NV", 2) == 0 && number(text + 2, 1, 18, &links)) {
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
    return fail(place->error, place->size, "%s:%u: %s = %s: expected %s", place->file, place->line,
                place->key, value, wanted);
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
                set_pair(profile, a, b, path, nvlinks);
            }
        }
        return true;
    }
    bool pci = strncmp(place->key, "pci.", 4) == 0;
    if (sscanf(place->key + (pci ? 3 : 4), ".%u.%u%c", &a, &b, &rest) != 2 || a >= GPUS_MAX ||
        b >= GPUS_MAX || a == b)
        return fail(place->error, place->size, "%s:%u: %s: expected two GPUs, as in link.0.1",
                    place->file, place->line, place->key);
    path = profile->path[a][b];
    nvlinks = profile->nvlinks[a][b];
    uint8_t linked = nvlinks;
    if (!parse_link(value, &path, &nvlinks) || (pci && nvlinks != 0 && nvlinks != linked))
        return wrong_value(place, value, WANTED_LINK);
    set_pair(profile, a, b, path, pci ? linked : nvlinks);
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

static bool set_numbered(struct profile *profile, const struct place *place, const char *value) {
    unsigned index;
    unsigned long node;
    char rest;
    if (sscanf(place->key, "numa.%u%c", &index, &rest) == 1 && index < GPUS_MAX) {
        if (!number(value, 0, NUMA_NODES_MAX - 1, &node))
            return wrong_value(place, value, "a NUMA node from 0 to 7");
        profile->numa[index] = (uint8_t)node;
        return true;
    }
    if (sscanf(place->key, "cpus.%u%c", &index, &rest) == 1 && index < NUMA_NODES_MAX)
        return set_text(profile->cpus[index], sizeof profile->cpus[index], place, value);
    return fail(place->error, place->size, "%s:%u: unknown key %s", place->file, place->line,
                place->key);
}

static bool set(struct profile *profile, const struct place *place, const char *value) {
    unsigned long parsed;
    if (strcmp(place->key, "model") == 0) {
        if (!use_model(profile, value))
            return wrong_value(place, value, "a model known here, V100 or V100-PCIE");
        use_usual_topology(profile);
        return true;
    }
    if (strcmp(place->key, "count") == 0) {
        if (!number(value, 1, GPUS_MAX, &parsed))
            return wrong_value(place, value, "a number from 1 to 16");
        profile->gpus = (unsigned)parsed;
        use_usual_topology(profile);
        return true;
    }
    if (strcmp(place->key, "memory") == 0) {
        if (!number(value, 1, 1UL << 24, &parsed))
            return wrong_value(place, value, "a number of MiB");
        profile->model.memory_bytes = (uint64_t)parsed << 20;
        return true;
    }
    if (strcmp(place->key, "kernel_us") == 0) {
        if (!number(value, 1, 60000000, &parsed))
            return wrong_value(place, value, "microseconds from 1 to 60000000");
        profile->kernel_us = (uint32_t)parsed;
        return true;
    }
    if (strcmp(place->key, "name") == 0)
        return set_text(profile->model.name, sizeof profile->model.name, place, value);
    if (strcmp(place->key, "seed") == 0)
        return set_text(profile->seed, sizeof profile->seed, place, value);
    if (strcmp(place->key, "state") == 0)
        return set_state(profile, place, value);
    if (strcmp(place->key, "link") == 0 || strncmp(place->key, "link.", 5) == 0 ||
        strncmp(place->key, "pci.", 4) == 0)
        return set_link(profile, place, value);
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

static bool read_file(struct profile *profile, FILE *file, const char *path, char *error,
                      size_t size) {
    char line[4352];
    struct place place = {.file = path, .error = error, .size = size};
    use_defaults(profile);
    while (fgets(line, sizeof line, file) != NULL) {
        place.line++;
        line[strcspn(line, "#")] = '\0';
        char *key = trim(line);
        if (*key == '\0')
            continue;
        char *equals = strchr(key, '=');
        if (equals == NULL)
            return fail(error, size, "%s:%u: expected key = value", path, place.line);
        *equals = '\0';
        place.key = trim(key);
        if (!set(profile, &place, trim(equals + 1)))
            return false;
    }
    return true;
}

/* ---- choice ------------------------------------------------------------ */

static bool read_name(struct profile *profile, const char *source, char *error, size_t size) {
    char key[32];
    unsigned long gpus;
    const char *times = strrchr(source, 'x');
    size_t length = times == NULL ? 0 : (size_t)(times - source);
    use_defaults(profile);
    if (length > 0 && length < sizeof key && number(times + 1, 1, GPUS_MAX, &gpus)) {
        memcpy(key, source, length);
        key[length] = '\0';
        if (use_model(profile, key)) {
            profile->gpus = (unsigned)gpus;
            use_usual_topology(profile);
            return true;
        }
    }
    return fail(error, size,
                "no profile %s: expected a file, or MODELxN with model V100 or V100-PCIE and "
                "1 to 16 GPUs",
                source);
}

bool profile_read(struct profile *profile, const char *source, char *error, size_t size) {
    if (strchr(source, '/') == NULL && access(source, R_OK) != 0)
        return read_name(profile, source, error, size);
    FILE *file = fopen(source, "re");
    if (file == NULL)
        return fail(error, size, "cannot read profile %s: %s", source, strerror(errno));
    bool good = read_file(profile, file, source, error, size);
    fclose(file);
    return good;
}

bool profile_choose(struct profile *profile, const char *library_path, char *error, size_t size) {
    char beside[4096];
    const char *source = getenv("FAKEGPU_PROFILE");
    if (source == NULL || *source == '\0') {
        const char *slash = strrchr(library_path, '/');
        int length = snprintf(beside, sizeof beside, "%.*sfakegpu.profile",
                              slash == NULL ? 0 : (int)(slash - library_path + 1), library_path);
        bool found = length > 0 && (size_t)length < sizeof beside && access(beside, F_OK) == 0;
        source = found ? beside : "V100x1";
    }
    if (!profile_read(profile, source, error, size))
        return false;
    const char *seed = getenv("FAKEGPU_SEED");
    if (seed != NULL && strlen(seed) >= sizeof profile->seed)
        return fail(error, size, "FAKEGPU_SEED is longer than %zu characters",
                    sizeof profile->seed - 1);
    if (seed != NULL && *seed != '\0')
        strcpy(profile->seed, seed);
    return true;
}

/* ---- identity ---------------------------------------------------------- */

static uint64_t hash_text(uint64_t hash, const char *text) {
    for (; *text != '\0'; text++)
        hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return (hash ^ 0xff) * UINT64_C(0x100000001b3);
}

/* The finaliser of splitmix64: spreads the low bits of an FNV hash over all. */
static uint64_t spread(uint64_t value) {
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

void profile_uuid(const struct profile *profile, unsigned gpu, uint8_t uuid[16]) {
    uint64_t hash = hash_text(UINT64_C(0xcbf29ce484222325), profile->model.name);
    hash = hash_text(hash, profile->seed) + gpu;
    uint64_t words[2] = {spread(hash + UINT64_C(0x9e3779b97f4a7c15)),
                         spread(hash + UINT64_C(0x3c6ef372fe94f82a))};
    memcpy(uuid, words, 16);
    /* RFC 9562: version 8, made by a rule of one's own. */
    uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x80);
    uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
}

void profile_uuid_text(const struct profile *profile, unsigned gpu, char text[48]) {
    uint8_t u[16];
    profile_uuid(profile, gpu, u);
    snprintf(text, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
             u[14], u[15]);
}

unsigned profile_pci_bus(unsigned gpu) {
    return 0x1a + gpu;
}

uint64_t profile_hash(const struct profile *profile) {
    uint64_t hash = hash_text(UINT64_C(0xcbf29ce484222325), profile->model.name);
    hash = hash_text(hash, profile->seed);
    return spread(hash ^ profile->gpus ^ profile->model.memory_bytes);
}

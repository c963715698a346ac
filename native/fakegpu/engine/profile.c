#include "profile.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models.h"
#include "text.h"

__attribute__((format(printf, 3, 4))) static bool fail(char *error, size_t size, const char *format,
                                                       ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, size, format, arguments);
    va_end(arguments);
    return false;
}

static bool read_name(struct profile *profile, const char *source, char *error, size_t size) {
    char key[32];
    unsigned long gpus;
    const char *times = strrchr(source, 'x');
    size_t length = times == NULL ? 0 : (size_t)(times - source);
    profile_use_defaults(profile);
    if (length > 0 && length < sizeof key && profile_number(times + 1, 1, GPUS_MAX, &gpus)) {
        memcpy(key, source, length);
        key[length] = '\0';
        if (profile_use_model(profile, key, 0, GPUS_MAX)) {
            profile->gpus = (unsigned)gpus;
            profile_use_usual_topology(profile);
            return true;
        }
    }
    return fail(error, size,
                "no profile %s: expected a file, or MODELxN with model V100, V100-PCIE or H100 and "
                "1 to 16 GPUs",
                source);
}

bool profile_read(struct profile *profile, const char *source, char *error, size_t size) {
    if (strchr(source, '/') == NULL && access(source, R_OK) != 0)
        return read_name(profile, source, error, size);
    FILE *file = fopen(source, "re");
    if (file == NULL)
        return fail(error, size, "cannot read profile %s: %s", source, strerror(errno));
    bool good = profile_read_text(profile, file, source, error, size);
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

static void make_uuid(const struct profile *profile, unsigned gpu, uint64_t number,
                      uint8_t uuid[16]) {
    uint64_t hash = hash_text(UINT64_C(0xcbf29ce484222325), profile->models[gpu].name);
    hash = hash_text(hash, profile->seed) + number;
    uint64_t words[2] = {spread(hash + UINT64_C(0x9e3779b97f4a7c15)),
                         spread(hash + UINT64_C(0x3c6ef372fe94f82a))};
    memcpy(uuid, words, 16);
    /* RFC 9562: version 8, made by a rule of one's own. */
    uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x80);
    uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
}

static void print_uuid(const char *prefix, const uint8_t u[16], char text[48]) {
    snprintf(text, 48, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             prefix, u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11],
             u[12], u[13], u[14], u[15]);
}

void profile_uuid(const struct profile *profile, unsigned gpu, uint8_t uuid[16]) {
    make_uuid(profile, gpu, gpu, uuid);
}

void profile_uuid_text(const struct profile *profile, unsigned gpu, char text[48]) {
    uint8_t uuid[16];
    make_uuid(profile, gpu, gpu, uuid);
    print_uuid("GPU", uuid, text);
}

void profile_mig_text(const struct profile *profile, unsigned gpu, unsigned mig, char text[48]) {
    uint8_t uuid[16];
    make_uuid(profile, gpu, GPUS_MAX + gpu * MIGS_MAX + mig, uuid);
    print_uuid("MIG", uuid, text);
}

unsigned profile_pci_bus(unsigned gpu) {
    return 0x1a + gpu;
}

uint64_t profile_hash(const struct profile *profile) {
    uint64_t hash = hash_text(UINT64_C(0xcbf29ce484222325), profile->seed);
    for (unsigned gpu = 0; gpu < profile->gpus; gpu++)
        hash =
            spread(hash_text(hash, profile->models[gpu].name) ^ profile->models[gpu].memory_bytes);
    return spread(hash ^ profile->gpus);
}

/*
 * Where the session's folder is, in this order:
 *
 * 1. /run/kubeshare/claim, which only the node agent can put into a container.
 *    If it exists the environment is not read: a container cannot point the
 *    library at a page of its own.
 * 2. The folder that KUBESHARE_CLAIM names (`kubeshare run`), unless the
 *    program gained privileges when it started.
 */
#include "session.h"

#include "lock.h"
#include "slots.h"
#include "system.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static ks_lock opening;
static atomic_bool is_open;
static const struct ks_page_header *page;
static uint64_t number;
static char folder[PATH_MAX];

static bool folder_exists(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Chooses the folder of the session and the file of its account. */
static bool locate(const char **counters) {
    if (folder_exists(KS_CLAIM_FOLDER)) {
        strcpy(folder, KS_CLAIM_FOLDER);
        *counters = KS_COUNTERS_FILE;
        return true;
    }
    const char *named = secure_getenv(KS_CLAIM_FOLDER_ENV);
    *counters = secure_getenv(KS_COUNTERS_FILE_ENV);
    if (named == NULL || *counters == NULL || strlen(named) > PATH_MAX - sizeof "/socket")
        return false;
    strcpy(folder, named);
    return true;
}

static bool is_valid(const struct ks_page_header *header, off_t file_bytes) {
    const size_t bytes = sizeof *header + header->cells * sizeof(struct ks_page_cell);
    return header->magic == KS_PAGE_MAGIC && header->version == KS_WIRE_VERSION &&
           header->cells >= 1 && header->cells <= KS_CELLS_MAX && header->size_bytes >= bytes &&
           file_bytes >= (off_t)header->size_bytes;
}

static const struct ks_page_header *map_page(void) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.*s/page", (int)(sizeof path - sizeof "/page"), folder);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0 ||
        status.st_size < (off_t)sizeof(struct ks_page_header)) {
        ks_debug("%s cannot be read, or is no page: no GPU may be used", path);
        if (file >= 0)
            close(file);
        return NULL;
    }
    void *mapped = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED)
        return NULL;
    if (!is_valid(mapped, status.st_size)) {
        ks_debug("%s has another format than this library knows: no GPU may be used", path);
        munmap(mapped, (size_t)status.st_size);
        return NULL;
    }
    number = (uint64_t)status.st_ino;
    return mapped;
}

static uint32_t grant_state(const struct ks_page_header *header) {
    return atomic_load((const atomic_uint *)&header->grant_state);
}

static bool open_page_and_counters(void) {
    const char *counters;
    if (page == NULL) {
        if (!locate(&counters)) {
            ks_debug("no session: no GPU may be used");
            return false;
        }
        const struct ks_page_header *found = map_page();
        if (found == NULL || !ks_slots_open(counters))
            return false;
        page = found;
    }
    if (grant_state(page) != KS_GRANT_ACTIVE) {
        ks_debug("the grant of %s is not active (state %u)", folder, grant_state(page));
        return false;
    }
    return true;
}

bool ks_session_open(void) {
    if (atomic_load_explicit(&is_open, memory_order_acquire))
        return true;
    const int cancel = ks_forbid_cancel();
    ks_acquire(&opening, KS_LOCK_SESSION);
    const bool opened = atomic_load(&is_open) || open_page_and_counters();
    atomic_store_explicit(&is_open, opened, memory_order_release);
    ks_release(&opening);
    ks_allow_cancel(cancel);
    return opened;
}

bool ks_session_is_open(void) {
    return atomic_load_explicit(&is_open, memory_order_acquire);
}

bool ks_session_is_revoked(void) {
    const uint32_t state = grant_state(page);
    return state == KS_GRANT_REVOKED || state == KS_GRANT_REFUSED;
}

unsigned ks_session_cells(void) {
    return page->cells;
}

const struct ks_page_cell *ks_session_cell(unsigned index) {
    return (const struct ks_page_cell *)(page + 1) + index;
}

const struct ks_page_extension *ks_session_extension(unsigned index) {
    const uint32_t offset = atomic_load((const atomic_uint *)&page->extensions);
    const void *extensions = (const char *)page + offset;
    return offset != 0 ? (const struct ks_page_extension *)extensions + index : NULL;
}

uint64_t ks_session_memory_limit(unsigned cell) {
    return ks_session_cell(cell)->memory_limit_bytes;
}

bool ks_session_is_oversubscribed(unsigned cell) {
    const struct ks_page_extension *extension = ks_session_extension(cell);
    return extension != NULL && atomic_load((const atomic_uint *)&extension->oversubscribed) != 0;
}

uint64_t ks_session_overhead(unsigned cell) {
    return atomic_load((const _Atomic uint64_t *)&ks_session_cell(cell)->overhead_bytes);
}

int ks_session_cell_of_uuid(const unsigned char uuid[16]) {
    for (unsigned cell = 0; cell < ks_session_cells(); cell++) {
        if (memcmp(ks_session_cell(cell)->uuid, uuid, 16) == 0)
            return (int)cell;
    }
    return KS_NO_CELL;
}

uint64_t ks_session_number(void) {
    return number;
}

/* A path that is too long for an address is reached through the folder's descriptor. */
static bool address_of(struct sockaddr_un *address, int *folder_descriptor) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int length = snprintf(address->sun_path, sizeof address->sun_path, "%s/socket", folder);
    if (length < (int)sizeof address->sun_path)
        return true;
    *folder_descriptor = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/socket",
             *folder_descriptor);
    return *folder_descriptor >= 0;
}

int ks_session_connect(void) {
    struct sockaddr_un address;
    int folder_descriptor = -1;
    int connection = -1;
    if (address_of(&address, &folder_descriptor))
        connection = ks_move_descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (connection >= 0 &&
        connect(connection, (const struct sockaddr *)&address, sizeof address) != 0) {
        close(connection);
        connection = -1;
    }
    if (folder_descriptor >= 0)
        close(folder_descriptor);
    return connection;
}

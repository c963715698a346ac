#include "backing.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BACKING_MAGIC   UINT64_C(0x4d454d555047414b)
#define CLOSE_ON_EXEC   1u
#define BACKING_LARGEST (UINT64_C(1) << 62)

bool backing_make(struct backing *backing, const struct backing_header *header) {
    /* The C library that this is built for does not have the call yet. */
    backing->fd = (int)syscall(SYS_memfd_create, "fakegpu", CLOSE_ON_EXEC);
    backing->end = BACKING_PAGE;
    if (backing->fd < 0)
        return false;
    struct backing_header written;
    if (header == NULL)
        return true;
    written = *header;
    written.magic = BACKING_MAGIC;
    if (ftruncate(backing->fd, (off_t)BACKING_PAGE) == 0 &&
        pwrite(backing->fd, &written, sizeof written, 0) == (ssize_t)sizeof written)
        return true;
    close(backing->fd);
    return false;
}

bool backing_read(int fd, enum backing_kind kind, struct backing_header *header) {
    return pread(fd, header, sizeof *header, 0) == (ssize_t)sizeof *header &&
           header->magic == BACKING_MAGIC && header->kind == kind &&
           memchr(header->uuid, '\0', sizeof header->uuid) != NULL;
}

struct device *backing_device(const struct backing_header *header) {
    for (int i = 0; i < driver.device_count; i++)
        if (strcmp(driver.engine.state->gpu[driver.devices[i].gpu].uuid, header->uuid) == 0)
            return &driver.devices[i];
    return NULL;
}

bool backing_take(struct backing *backing, uint64_t bytes, uint64_t *offset) {
    if (bytes > BACKING_LARGEST - backing->end ||
        ftruncate(backing->fd, (off_t)(backing->end + bytes)) != 0)
        return false;
    *offset = backing->end;
    backing->end += bytes;
    return true;
}

void backing_give(const struct backing *backing, uint64_t offset, uint64_t bytes) {
    while (fallocate(backing->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                     (off_t)bytes) != 0 &&
           errno == EINTR)
        ;
}

uint64_t backing_map(int fd, uint64_t offset, uint64_t bytes, uint64_t where) {
    void *mapped =
        mmap((void *)where, bytes, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_NORESERVE | (where == 0 ? 0 : MAP_FIXED), fd, (off_t)offset);
    return mapped == MAP_FAILED ? 0 : (uint64_t)mapped;
}

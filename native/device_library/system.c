#include "system.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Below the usual soft limit of 1024, above the descriptors that programs close blindly. */
#define LOWEST_DESCRIPTOR 700

int ks_move_descriptor(int fd) {
    if (fd < 0)
        return fd;
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR);
    if (moved < 0)
        return fd;
    close(fd);
    return moved;
}

struct ks_descriptor ks_descriptor_of(int fd) {
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0)
        return KS_NO_DESCRIPTOR;
    return (struct ks_descriptor){fd, status.st_dev, status.st_ino};
}

bool ks_descriptor_is_ours(const struct ks_descriptor *descriptor) {
    const struct ks_descriptor now = ks_descriptor_of(descriptor->number);
    return now.number >= 0 && now.device == descriptor->device && now.inode == descriptor->inode;
}

void ks_descriptor_close(struct ks_descriptor *descriptor) {
    if (ks_descriptor_is_ours(descriptor))
        close(descriptor->number);
    *descriptor = KS_NO_DESCRIPTOR;
}

void ks_debug(const char *format, ...) {
    static atomic_int asked = -1;
    int enabled = atomic_load_explicit(&asked, memory_order_relaxed);
    if (enabled < 0) {
        enabled = secure_getenv("KUBESHARE_DEBUG") != NULL;
        atomic_store_explicit(&asked, enabled, memory_order_relaxed);
    }
    if (!enabled)
        return;
    char line[512];
    const int prefix = snprintf(line, sizeof line, "kubeshare[%d]: ", (int)getpid());
    va_list arguments;
    va_start(arguments, format);
    const int text = vsnprintf(line + prefix, sizeof line - (size_t)prefix - 1, format, arguments);
    va_end(arguments);
    size_t length = (size_t)prefix + (size_t)(text > 0 ? text : 0);
    if (length > sizeof line - 2)
        length = sizeof line - 2;
    line[length] = '\n';
    if (write(STDERR_FILENO, line, length + 1) < 0)
        return; /* standard error is closed */
}

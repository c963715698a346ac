#include "ipc.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IPC_MAGIC  UINT64_C(0x43504955504754)
#define IPC_PREFIX "ipc-"

static bool path_of(char *path, size_t size, uint64_t process, uint64_t number) {
    int length = snprintf(path, size, "%s/" IPC_PREFIX "%llu-%llu", driver.engine.folder,
                          (unsigned long long)process, (unsigned long long)number);
    return length > 0 && (size_t)length < size;
}

int ipc_make(struct ipc_handle *handle, uint32_t gpu, uint64_t number, uint64_t bytes) {
    char path[4096];
    *handle = (struct ipc_handle){.magic = IPC_MAGIC,
                                  .process = driver.engine.process,
                                  .number = number,
                                  .bytes = bytes,
                                  .gpu = gpu};
    if (!path_of(path, sizeof path, handle->process, number))
        return -1;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0 && (fchmod(fd, 0666) != 0 || ftruncate(fd, (off_t)bytes) != 0)) {
        close(fd);
        unlink(path);
        return -1;
    }
    return fd;
}

int ipc_open(const struct ipc_handle *handle) {
    char path[4096];
    return path_of(path, sizeof path, handle->process, handle->number)
               ? open(path, O_RDWR | O_CLOEXEC)
               : -1;
}

bool ipc_is_handle(const struct ipc_handle *handle) {
    return handle->magic == IPC_MAGIC;
}

struct device *ipc_device(const struct ipc_handle *handle) {
    for (int i = 0; i < driver.device_count; i++)
        if (driver.devices[i].gpu == handle->gpu)
            return &driver.devices[i];
    return NULL;
}

void ipc_remove(uint64_t number) {
    char path[4096];
    if (path_of(path, sizeof path, driver.engine.process, number))
        unlink(path);
}

void ipc_sweep(void) {
    DIR *folder = opendir(driver.engine.folder);
    if (folder == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        unsigned long long process, number;
        if (sscanf(entry->d_name, IPC_PREFIX "%llu-%llu", &process, &number) == 2 &&
            !engine_process_lives(&driver.engine, process))
            unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
}

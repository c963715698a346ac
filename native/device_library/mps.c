#include "mps.h"

#include "system.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_FOLDER "/tmp/nvidia-mps"

void ks_mps_warn(void) {
    char control[PATH_MAX];
    const char *named = secure_getenv("CUDA_MPS_PIPE_DIRECTORY");
    const char *folder = named != NULL ? named : DEFAULT_FOLDER;
    const int length = snprintf(control, sizeof control, "%s/control", folder);
    if (length < (int)sizeof control && access(control, F_OK) == 0)
        ks_debug(
            "there is an MPS server (%s): a fatal error of one of its clients ends all of them",
            folder);
}

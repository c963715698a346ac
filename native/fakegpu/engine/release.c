/* The table of NVIDIA's release notes: the first branch of each CUDA version. */
#include "release.h"

#include <stddef.h>

static const struct {
    uint32_t driver;
    int cuda;
} releases[] = {
    {OLDEST_DRIVER, 12000},
    {530,           12010},
    {535,           12020},
    {545,           12030},
    {550,           12040},
    {555,           12050},
    {560,           12060},
    {565,           12070},
    {570,           12080},
    {575,           12090},
    {580,           13000},
    {590,           13010},
    {NEWEST_DRIVER, 13050},
};

int release_cuda(uint32_t driver) {
    int cuda = releases[0].cuda;
    for (size_t i = 0; i < sizeof releases / sizeof *releases; i++)
        if (releases[i].driver <= driver)
            cuda = releases[i].cuda;
    return cuda;
}

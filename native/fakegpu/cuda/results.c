/* The names and sentences of results. */
#include "driver.h"

static const struct {
    CUresult result;
    const char *name;
    const char *sentence;
} results[] = {
#define CUDA_RESULT(name, value, sentence) {name, #name, sentence},
#include "cuda_results.def"
#undef CUDA_RESULT
};

static int find(CUresult result) {
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i].result == result)
            return (int)i;
    return -1;
}

API cuGetErrorName(CUresult error, const char **text) {
    int found = find(error);
    REQUIRE(text != NULL, CUDA_ERROR_INVALID_VALUE);
    *text = found < 0 ? NULL : results[found].name;
    return found < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

API cuGetErrorString(CUresult error, const char **text) {
    int found = find(error);
    REQUIRE(text != NULL, CUDA_ERROR_INVALID_VALUE);
    *text = found < 0 ? NULL : results[found].sentence;
    return found < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/*
 * Linking of images. Any image is a valid module here, so one is made of
 * whatever is put in; kernels are found in it by the names that are asked for.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

struct CUlinkState_st {
    size_t inputs;
    char image[64]; /* what a link completes to */
};

static CUresult check_options(unsigned count, const CUjit_option *options, void *const *values) {
    return count == 0 || (options != NULL && values != NULL) ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_VALUE;
}

API cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values, CUlinkState *state) {
    struct CUctx_st *context;
    TRY(current_context(&context));
    TRY(check_options(count, options, values));
    REQUIRE(state != NULL, CUDA_ERROR_INVALID_VALUE);
    *state = calloc(1, sizeof **state);
    return *state == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

API cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
                     const char *name, unsigned int count, CUjit_option *options, void **values) {
    (void)name;
    TRY(driver_ready());
    TRY(check_options(count, options, values));
    REQUIRE(state != NULL, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE((unsigned)type < CU_JIT_NUM_INPUT_TYPES && data != NULL && size > 0,
            CUDA_ERROR_INVALID_VALUE);
    state->inputs++;
    return CUDA_SUCCESS;
}

API cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int count,
                     CUjit_option *options, void **values) {
    REQUIRE(path != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(access(path, R_OK) == 0, CUDA_ERROR_FILE_NOT_FOUND);
    return cuLinkAddData_v2(state, type, (void *)path, 1, path, count, options, values);
}

/* The image is the link's, until that is destroyed. */
API cuLinkComplete(CUlinkState state, void **image, size_t *size) {
    TRY(driver_ready());
    REQUIRE(state != NULL, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(image != NULL && state->inputs > 0, CUDA_ERROR_INVALID_VALUE);
    strcpy(state->image, "an image of linked images");
    *image = state->image;
    if (size != NULL)
        *size = sizeof state->image;
    return CUDA_SUCCESS;
}

API cuLinkDestroy(CUlinkState state) {
    TRY(driver_ready());
    REQUIRE(state != NULL, CUDA_ERROR_INVALID_HANDLE);
    free(state);
    return CUDA_SUCCESS;
}

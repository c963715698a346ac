/* How many blocks fit on a multiprocessor: as many as its threads and its shared memory allow. */
#include "driver.h"

#define THREADS 2048
#define BLOCKS  32

int blocks_that_fit(int threads, size_t shared_bytes) {
    int rounded = (threads + 31) / 32 * 32;
    int by_threads = THREADS / rounded;
    int by_shared =
        shared_bytes == 0 ? BLOCKS : (int)((size_t)current_model()->shared_bytes / shared_bytes);
    int least = by_threads < by_shared ? by_threads : by_shared;
    return least < BLOCKS ? least : BLOCKS;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                         int threads, size_t shared_bytes,
                                                         unsigned int flags) {
    TRY(driver_ready());
    REQUIRE(blocks != NULL && function != NULL && threads > 0 && flags <= 1,
            CUDA_ERROR_INVALID_VALUE);
    *blocks = threads > 1024 ? 0 : blocks_that_fit(threads, shared_bytes);
    return CUDA_SUCCESS;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                size_t shared_bytes) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                                shared_bytes, 0);
}

/* The largest block that fits whole, and as many of them as fill the GPU. */
API cuOccupancyMaxPotentialBlockSizeWithFlags(int *blocks, int *threads, CUfunction function,
                                              CUoccupancyB2DSize shared_of, size_t shared_bytes,
                                              int limit, unsigned int flags) {
    TRY(driver_ready());
    REQUIRE(blocks != NULL && threads != NULL && function != NULL && flags <= 1,
            CUDA_ERROR_INVALID_VALUE);
    *threads = limit > 0 && limit < 1024 ? limit : 1024;
    int each = blocks_that_fit(*threads, shared_of == NULL ? shared_bytes : shared_of(*threads));
    *blocks = each * current_model()->multiprocessors;
    return CUDA_SUCCESS;
}

API cuOccupancyMaxPotentialBlockSize(int *blocks, int *threads, CUfunction function,
                                     CUoccupancyB2DSize shared_of, size_t shared_bytes, int limit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(blocks, threads, function, shared_of,
                                                     shared_bytes, limit, 0);
}

API cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks,
                                            int threads) {
    TRY(driver_ready());
    REQUIRE(bytes != NULL && function != NULL && blocks > 0 && threads > 0,
            CUDA_ERROR_INVALID_VALUE);
    *bytes = (size_t)current_model()->shared_bytes / (unsigned)blocks;
    return CUDA_SUCCESS;
}

/* A cluster is one block here: the fake has no hardware that larger ones would share. */
API cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *launch) {
    TRY(driver_ready());
    REQUIRE(clusters != NULL && function != NULL && launch != NULL, CUDA_ERROR_INVALID_VALUE);
    const uint64_t threads = (uint64_t)launch->blockDimX * launch->blockDimY * launch->blockDimZ;
    REQUIRE(threads > 0 && threads <= 1024, CUDA_ERROR_INVALID_VALUE);
    *clusters =
        blocks_that_fit((int)threads, launch->sharedMemBytes) * current_model()->multiprocessors;
    return CUDA_SUCCESS;
}

/* CUDA arrays: memory in an order that only the GPU knows. */
#ifndef FAKEGPU_ARRAY_H
#define FAKEGPU_ARRAY_H

#include "account.h"

/* What an array's memory is a multiple of, and aligned to. */
#define ARRAY_UNIT (UINT64_C(64) << 10)

#define MIPMAP_LEVELS_MAX 32u

struct tile;

struct CUarray_st {
    struct CUctx_st *context;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    struct CUmipmappedArray_st *whole; /* that this is a level of */
    uint64_t row, rows, slices;        /* bytes of a row of elements, rows of a slice, slices */
    uint64_t tiled;                    /* bytes of the GPU, before they are rounded up */
    uint64_t charged;                  /* 0: mapped into it by the program, or the whole's */
    char *bytes;                       /* row by row, slice by slice */
    struct tile *tiles;                /* what has been mapped into it */
    struct CUarray_st *next;
};

struct CUmipmappedArray_st {
    struct CUctx_st *context;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    unsigned levels;
    uint64_t required, charged;
    struct tile *tiles;
    struct CUarray_st *level[MIPMAP_LEVELS_MAX];
    struct CUmipmappedArray_st *next;
};

/** The layout of a descriptor: false for a format that does not exist, or a shape that cannot. */
bool array_layout(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, struct CUarray_st *array);

/** An array handle given by the program. */
CUresult find_array(CUarray handle, struct CUarray_st **array);
CUresult find_mipmap(CUmipmappedArray handle, struct CUmipmappedArray_st **mipmap);

/** Makes an array that no list has yet; a level's charge is the whole's. */
CUresult array_make(struct CUctx_st *context, const CUDA_ARRAY3D_DESCRIPTOR *wanted,
                    struct CUarray_st **made);

/** Makes a mipmapped array and enters it in the list of all; `charged`: with memory of its own. */
CUresult mipmap_make(struct CUctx_st *context, const CUDA_ARRAY3D_DESCRIPTOR *wanted,
                     unsigned levels, bool charged, CUmipmappedArray *handle);

/** What a descriptor's memory costs when it is made: nothing where the program maps it. */
uint64_t array_price(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, uint64_t required);

/* ---- with driver.lock held ---- */

void array_list(struct CUarray_st *array);
void array_end(struct CUarray_st *array);

/** Undoes all mappings into an array. */
void tiles_end(struct tile **tiles);

/** Frees what a context that ends still has. */
void release_arrays_of(const struct CUctx_st *context);
void release_mipmaps_of(const struct CUctx_st *context);

#endif

/* Copies and fills: the calls meet here whatever their form. */
#ifndef FAKEGPU_COPY_H
#define FAKEGPU_COPY_H

#include "operation.h"

/** Whether [pointer, pointer + bytes) is memory that the driver gave out or knows. */
bool on_gpu(CUdeviceptr pointer, size_t bytes);

/** Copies in a stream; with `wait` returns when it is done. */
CUresult copy_form(const CUDA_MEMCPY3D *form, CUstream stream, bool wait);

/** The same for one row; `known`: whether its addresses may be used at all. */
CUresult copy_row(CUdeviceptr destination, CUdeviceptr source, size_t bytes, bool known,
                  CUstream stream, bool wait);

/* What all structures that describe a copy of rows have, as members of CUDA_MEMCPY3D. */
#define COPIED_ROWS(form)                                                                          \
    .srcXInBytes = (form)->srcXInBytes, .srcY = (form)->srcY,                                      \
    .srcMemoryType = (form)->srcMemoryType, .srcHost = (form)->srcHost,                            \
    .srcDevice = (form)->srcDevice, .srcArray = (form)->srcArray, .srcPitch = (form)->srcPitch,    \
    .dstXInBytes = (form)->dstXInBytes, .dstY = (form)->dstY,                                      \
    .dstMemoryType = (form)->dstMemoryType, .dstHost = (form)->dstHost,                            \
    .dstDevice = (form)->dstDevice, .dstArray = (form)->dstArray, .dstPitch = (form)->dstPitch,    \
    .WidthInBytes = (form)->WidthInBytes, .Height = (form)->Height

#endif

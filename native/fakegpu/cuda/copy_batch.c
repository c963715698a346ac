/* Many copies at once. */
#include "copy.h"

/* A batch has no order of its own: one after another is one. */
API cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                          CUmemcpyAttributes *attributes, size_t *places, size_t attribute_count,
                          CUstream stream) {
    REQUIRE(to != NULL && from != NULL && bytes != NULL && count > 0 && attributes != NULL &&
                places != NULL && attribute_count > 0 && attribute_count <= count,
            CUDA_ERROR_INVALID_VALUE);
    REQUIRE(stream != NULL && stream != CU_STREAM_LEGACY, CUDA_ERROR_INVALID_HANDLE);
    for (size_t i = 0; i < count; i++)
        TRY(copy_row(to[i], from[i], bytes[i], to[i] != 0 && from[i] != 0, stream, false));
    return CUDA_SUCCESS;
}

API cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                       CUmemcpyAttributes *attributes, size_t *places, size_t attribute_count,
                       size_t *failed, CUstream stream) {
    CUresult result =
        cuMemcpyBatchAsync_v2(to, from, bytes, count, attributes, places, attribute_count, stream);
    if (failed != NULL && result != CUDA_SUCCESS)
        *failed = SIZE_MAX;
    return result;
}

API cuMemcpyWithAttributesAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                CUmemcpyAttributes *attributes, CUstream stream) {
    REQUIRE(attributes != NULL, CUDA_ERROR_INVALID_VALUE);
    return copy_row(to, from, bytes, to != 0 && from != 0, stream, false);
}

/* Where no array is, rows are counted in bytes. */
static CUresult copy_operands(const CUDA_MEMCPY3D_BATCH_OP *batch, CUstream stream) {
    const CUmemcpy3DOperand *from = &batch->src, *to = &batch->dst;
    MODELLED(from->type == CU_MEMCPY_OPERAND_TYPE_POINTER &&
                 to->type == CU_MEMCPY_OPERAND_TYPE_POINTER,
             "an array in a batch of copies");
    const CUDA_MEMCPY3D form = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .srcDevice = from->op.ptr.ptr,
                                .srcPitch = from->op.ptr.rowLength,
                                .srcHeight = from->op.ptr.layerHeight,
                                .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .dstDevice = to->op.ptr.ptr,
                                .dstPitch = to->op.ptr.rowLength,
                                .dstHeight = to->op.ptr.layerHeight,
                                .WidthInBytes = batch->extent.width,
                                .Height = batch->extent.height,
                                .Depth = batch->extent.depth};
    return copy_form(&form, stream, false);
}

API cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *batch, unsigned long long flags,
                            CUstream stream) {
    REQUIRE(count > 0 && batch != NULL && flags == 0, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        TRY(copy_operands(&batch[i], stream));
    return CUDA_SUCCESS;
}

API cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *batch, size_t *failed,
                         unsigned long long flags, CUstream stream) {
    CUresult result = cuMemcpy3DBatchAsync_v2(count, batch, flags, stream);
    if (failed != NULL && result != CUDA_SUCCESS)
        *failed = SIZE_MAX;
    return result;
}

API cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *batch, unsigned long long flags,
                                  CUstream stream) {
    return cuMemcpy3DBatchAsync_v2(1, batch, flags, stream);
}

API cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP *batch, unsigned long long flags,
                                       CUstream stream) {
    return cuMemcpy3DBatchAsync_v2(1, batch, flags, per_thread(stream));
}

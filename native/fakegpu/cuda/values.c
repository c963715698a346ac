/* Operations on memory in a stream: values written, and values waited for. */
#include "operation.h"

/* ---- doing them ------------------------------------------------------------------ */

static bool is_wait(const CUstreamBatchMemOpParams *item) {
    return item->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
           item->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

static bool is_write(const CUstreamBatchMemOpParams *item) {
    return item->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
           item->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static bool is_wide(const CUstreamBatchMemOpParams *item) {
    return item->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
           item->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

/* "At least" is cyclic, as sequence numbers need it. */
static bool holds(const CUstreamBatchMemOpParams *item) {
    uint64_t wanted, there;
    int64_t ahead;
    if (is_wide(item)) {
        wanted = item->waitValue.value64;
        there = __atomic_load_n((uint64_t *)item->waitValue.address, __ATOMIC_ACQUIRE);
        ahead = (int64_t)(there - wanted);
    } else {
        wanted = item->waitValue.value;
        there = __atomic_load_n((uint32_t *)item->waitValue.address, __ATOMIC_ACQUIRE);
        ahead = (int32_t)(uint32_t)(there - wanted);
        there |= UINT64_C(0xffffffff00000000);
    }
    switch (item->waitValue.flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return ahead >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return ahead == 0;
    case CU_STREAM_WAIT_VALUE_AND:
        return (there & wanted) != 0;
    default:
        return ~(there | wanted) != 0;
    }
}

static void write_value(const CUstreamBatchMemOpParams *item) {
    if (is_wide(item))
        __atomic_store_n((uint64_t *)item->writeValue.address, item->writeValue.value64,
                         __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)item->writeValue.address, item->writeValue.value,
                         __ATOMIC_RELEASE);
}

bool values_progress(const struct operation *operation, unsigned *next) {
    for (; *next < operation->values.count; ++*next) {
        const CUstreamBatchMemOpParams *item = &operation->values.value[*next];
        if (is_wait(item) && !holds(item))
            return false;
        if (is_write(item))
            write_value(item);
    }
    return true;
}

/* ---- asking for them --------------------------------------------------------------- */

static CUresult check(const CUstreamBatchMemOpParams *item) {
    if (item->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES ||
        item->operation == CU_STREAM_MEM_OP_BARRIER)
        return CUDA_SUCCESS;
    MODELLED(item->operation != CU_STREAM_MEM_OP_ATOMIC_REDUCTION, "an atomic reduction");
    REQUIRE(is_wait(item) || is_write(item), CUDA_ERROR_INVALID_VALUE);
    uint64_t address = is_wait(item) ? item->waitValue.address : item->writeValue.address;
    REQUIRE(address != 0 && address % (is_wide(item) ? 8 : 4) == 0, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult values_operation(struct operation *operation, unsigned count,
                          CUstreamBatchMemOpParams *values) {
    REQUIRE(count > 0 && count <= 256 && values != NULL, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++)
        TRY(check(&values[i]));
    *operation = (struct operation){
        .kind = OPERATION_VALUES, .values = {values, count}
    };
    return CUDA_SUCCESS;
}

API cuStreamBatchMemOp_v2(CUstream handle, unsigned int count, CUstreamBatchMemOpParams *values,
                          unsigned int flags) {
    struct CUstream_st *stream;
    struct operation operation;
    TRY(find_stream(handle, &stream));
    REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
    TRY(values_operation(&operation, count, values));
    return stream_do(stream, &operation);
}

static CUresult wait_value(CUstream stream, bool wide, CUdeviceptr address, uint64_t value,
                           unsigned flags) {
    CUstreamBatchMemOpParams item = {
        .waitValue = {.operation =
                          wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32,
                      .address = address,
                      .value64 = value,
                      .flags = flags}
    };
    return cuStreamBatchMemOp_v2(stream, 1, &item, 0);
}

static CUresult set_value(CUstream stream, bool wide, CUdeviceptr address, uint64_t value,
                          unsigned flags) {
    CUstreamBatchMemOpParams item = {
        .writeValue = {.operation =
                           wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32,
                       .address = address,
                       .value64 = value,
                       .flags = flags}
    };
    return cuStreamBatchMemOp_v2(stream, 1, &item, 0);
}

/* Each in its two ABIs, which agree on every GPU since Volta, for either kind of default stream. */
#define VALUE(name, suffix, do_it, type, wide)                                                     \
    API name##suffix(CUstream stream, CUdeviceptr address, type value, unsigned int flags) {       \
        return do_it(stream, wide, address, value, flags);                                         \
    }                                                                                              \
    API name##suffix##_ptsz(CUstream stream, CUdeviceptr address, type value,                      \
                            unsigned int flags) {                                                  \
        return do_it(per_thread(stream), wide, address, value, flags);                             \
    }

VALUE(cuStreamWaitValue32, , wait_value, cuuint32_t, false)
VALUE(cuStreamWaitValue32, _v2, wait_value, cuuint32_t, false)
VALUE(cuStreamWaitValue64, , wait_value, cuuint64_t, true)
VALUE(cuStreamWaitValue64, _v2, wait_value, cuuint64_t, true)
VALUE(cuStreamWriteValue32, , set_value, cuuint32_t, false)
VALUE(cuStreamWriteValue32, _v2, set_value, cuuint32_t, false)
VALUE(cuStreamWriteValue64, , set_value, cuuint64_t, true)
VALUE(cuStreamWriteValue64, _v2, set_value, cuuint64_t, true)

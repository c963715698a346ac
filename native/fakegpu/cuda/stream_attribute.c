/* What can be set of a stream: kept and answered, and of no effect here but for its priority. */
#include <string.h>

#include "driver.h"

/* Where a stream keeps the value of an attribute; NULL: streams do not have it. */
static CUlaunchAttributeValue *place(struct CUstream_st *stream, CUstreamAttrID attribute) {
    switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return &stream->attributes[0];
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        return &stream->attributes[1];
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        return &stream->attributes[2];
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return &stream->attributes[3];
    default:
        return NULL;
    }
}

API cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute,
                         const CUstreamAttrValue *value) {
    struct CUstream_st *stream;
    TRY(find_stream(handle, &stream));
    REQUIRE(value != NULL, CUDA_ERROR_INVALID_VALUE);
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        stream->priority = value->priority;
        return CUDA_SUCCESS;
    }
    CUlaunchAttributeValue *kept = place(stream, attribute);
    REQUIRE(kept != NULL, CUDA_ERROR_INVALID_VALUE);
    *kept = *value;
    return CUDA_SUCCESS;
}

API cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue *value) {
    struct CUstream_st *stream;
    TRY(find_stream(handle, &stream));
    REQUIRE(value != NULL, CUDA_ERROR_INVALID_VALUE);
    memset(value, 0, sizeof *value);
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        value->priority = stream->priority;
        return CUDA_SUCCESS;
    }
    const CUlaunchAttributeValue *kept = place(stream, attribute);
    REQUIRE(kept != NULL, CUDA_ERROR_INVALID_VALUE);
    *value = *kept;
    return CUDA_SUCCESS;
}

API cuStreamCopyAttributes(CUstream to, CUstream from) {
    struct CUstream_st *copy, *original;
    TRY(find_stream(to, &copy));
    TRY(find_stream(from, &original));
    memcpy(copy->attributes, original->attributes, sizeof copy->attributes);
    return CUDA_SUCCESS;
}

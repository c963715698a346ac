/* Modules and libraries: any image is accepted, and has every function that is asked of it. Of its
 * variables those are known that PTX declares. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture.h"
#include "overhead.h"
#include "variables.h"

/* Kernels that the fake knows. This one's argument is its duration in microseconds. */
#define SPIN_KERNEL "kubeshare_spin_us"
#define SPIN_NS     1000

/* This one's is how many rounds of work it does, of which a microsecond has ten. */
#define WORK_KERNEL "kubeshare_work"
#define WORK_NS     100

/* Another that breaks its context, with the error (XID) that its argument names. */
#define FAULT_KERNEL "kubeshare_fault"

struct CUlib_st {
    struct CUmod_st module;
};

/* Whether code is loaded with its module, not with the first kernel that is asked for. */
static bool loads_eagerly(void) {
    const char *mode = getenv("CUDA_MODULE_LOADING");
    return mode != NULL && strcmp(mode, "EAGER") == 0;
}

/* A module's code comes into a context's memory, once. */
CUresult module_enter(struct CUmod_st *module, struct CUctx_st *context) {
    if (__atomic_load_n(&module->context, __ATOMIC_ACQUIRE) != NULL)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&driver.lock);
    bool room = module->context != NULL || context_charge(context, module_price());
    if (module->context == NULL && room) {
        module->context_id = context->id;
        module->charged = module_price();
        __atomic_store_n(&module->context, context, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&driver.lock);
    return room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Into its own context where that lives, a library into the first one that asks something of it. */
static CUresult enter_own(struct CUmod_st *module) {
    struct CUctx_st *context = module->owner;
    if (context != NULL)
        return context_is_alive(context) ? module_enter(module, context) : CUDA_SUCCESS;
    return current_context(&context) == CUDA_SUCCESS ? module_enter(module, context) : CUDA_SUCCESS;
}

/* A context that ended took the memory along. */
static void leave_context(struct CUmod_st *module) {
    struct CUctx_st *context = module->context;
    pthread_mutex_lock(&driver.lock);
    if (context != NULL && context->alive && context->id == module->context_id)
        context_uncharge(context, module->charged);
    pthread_mutex_unlock(&driver.lock);
}

static CUresult load(struct CUctx_st *context, CUmodule *module, const void *image) {
    REQUIRE(module != NULL && image != NULL, CUDA_ERROR_INVALID_VALUE);
    struct CUmod_st *loaded = calloc(1, sizeof *loaded);
    REQUIRE(loaded != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    loaded->owner = context;
    CUresult result = loads_eagerly() ? module_enter(loaded, context) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        free(loaded);
        return result;
    }
    loaded->variables = variables_read(image);
    *module = loaded;
    return CUDA_SUCCESS;
}

static CUresult get_function(struct CUfunc_st **function, struct CUmod_st *module,
                             const char *name) {
    REQUIRE(function != NULL && name != NULL && *name != '\0', CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    struct CUfunc_st *found = module->functions;
    while (found != NULL && strcmp(found->name, name) != 0)
        found = found->next;
    if (found == NULL && (found = calloc(1, sizeof *found + strlen(name) + 1)) != NULL) {
        strcpy(found->name, name);
        found->module = module;
        found->block[0] = found->block[1] = found->block[2] = 1;
        found->argument_ns = strcmp(name, SPIN_KERNEL) == 0   ? SPIN_NS
                             : strcmp(name, WORK_KERNEL) == 0 ? WORK_NS
                                                              : 0;
        found->breaks = strcmp(name, FAULT_KERNEL) == 0;
        found->next = module->functions;
        module->functions = found;
    }
    pthread_mutex_unlock(&driver.lock);
    *function = found;
    return found == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static void free_functions(struct CUmod_st *module) {
    while (module->functions != NULL) {
        struct CUfunc_st *function = module->functions;
        module->functions = function->next;
        free(function);
    }
}

/* ---- modules --------------------------------------------------------------- */

API cuModuleLoadData(CUmodule *module, const void *image) {
    struct CUctx_st *context;
    TRY(current_context(&context));
    TRY(unsafe_call());
    return load(context, module, image);
}

API cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
                       CUjit_option *options, void **values) {
    REQUIRE(count == 0 || (options != NULL && values != NULL), CUDA_ERROR_INVALID_VALUE);
    return cuModuleLoadData(module, image);
}

API cuModuleLoad(CUmodule *module, const char *path) {
    REQUIRE(path != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(access(path, R_OK) == 0, CUDA_ERROR_FILE_NOT_FOUND);
    return cuModuleLoadData(module, path);
}

API cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, CUmodule module, const char *name) {
    TRY(driver_ready());
    REQUIRE(module != NULL && name != NULL && (pointer != NULL || bytes != NULL),
            CUDA_ERROR_INVALID_VALUE);
    return variable_find(module->variables, name, pointer, bytes);
}

API cuModuleUnload(CUmodule module) {
    TRY(driver_ready());
    REQUIRE(module != NULL, CUDA_ERROR_INVALID_HANDLE);
    leave_context(module);
    variables_free(module->variables);
    free_functions(module);
    free(module);
    return CUDA_SUCCESS;
}

API cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    TRY(driver_ready());
    REQUIRE(module != NULL, CUDA_ERROR_INVALID_HANDLE);
    TRY(enter_own(module));
    return get_function(function, module, name);
}

API cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    REQUIRE(mode != NULL, CUDA_ERROR_INVALID_VALUE);
    *mode = loads_eagerly() ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

/* ---- libraries: modules of no context in particular --------------------------- */

API cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options,
                      void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                      void **values, unsigned int count) {
    TRY(driver_ready());
    REQUIRE(library != NULL && code != NULL && (jit_count == 0 || (jit_options && jit_values)) &&
                (count == 0 || (options && values)),
            CUDA_ERROR_INVALID_VALUE);
    struct CUlib_st *loaded = calloc(1, sizeof *loaded);
    REQUIRE(loaded != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = loads_eagerly() ? enter_own(&loaded->module) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        *library = loaded;
    else
        free(loaded);
    return result;
}

API cuLibraryUnload(CUlibrary library) {
    TRY(driver_ready());
    REQUIRE(library != NULL, CUDA_ERROR_INVALID_HANDLE);
    leave_context(&library->module);
    free_functions(&library->module);
    free(library);
    return CUDA_SUCCESS;
}

API cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    TRY(driver_ready());
    REQUIRE(library != NULL, CUDA_ERROR_INVALID_HANDLE);
    TRY(enter_own(&library->module));
    return get_function((CUfunction *)kernel, &library->module, name);
}

API cuLibraryGetModule(CUmodule *module, CUlibrary library) {
    TRY(driver_ready());
    REQUIRE(module != NULL && library != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(enter_own(&library->module));
    *module = &library->module;
    return CUDA_SUCCESS;
}

/* A kernel's handle may be launched as a function; here it is one. */
API cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    TRY(driver_ready());
    REQUIRE(function != NULL && kernel != NULL, CUDA_ERROR_INVALID_VALUE);
    *function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

API cuKernelGetName(const char **name, CUkernel kernel) {
    REQUIRE(name != NULL && kernel != NULL, CUDA_ERROR_INVALID_VALUE);
    *name = ((CUfunction)kernel)->name;
    return CUDA_SUCCESS;
}

/* ---- functions ------------------------------------------------------------------ */

API cuFuncGetName(const char **name, CUfunction function) {
    REQUIRE(name != NULL && function != NULL, CUDA_ERROR_INVALID_VALUE);
    *name = function->name;
    return CUDA_SUCCESS;
}

API cuFuncGetModule(CUmodule *module, CUfunction function) {
    REQUIRE(module != NULL && function != NULL, CUDA_ERROR_INVALID_VALUE);
    *module = function->module;
    return CUDA_SUCCESS;
}

API cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    REQUIRE(value != NULL && function != NULL && attribute < CU_FUNC_ATTRIBUTE_MAX,
            CUDA_ERROR_INVALID_VALUE);
    const struct model *model = current_model();
    int version = model->compute_major * 10 + model->compute_minor;
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
             : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS            ? 16
             : attribute == CU_FUNC_ATTRIBUTE_PTX_VERSION ||
                     attribute == CU_FUNC_ATTRIBUTE_BINARY_VERSION
                 ? version
                 : 0;
    return CUDA_SUCCESS;
}

API cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                         CUdevice device) {
    REQUIRE(device >= 0 && device < driver.device_count, CUDA_ERROR_INVALID_DEVICE);
    return cuFuncGetAttribute(value, attribute, (CUfunction)kernel);
}

API cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    REQUIRE(function != NULL && attribute < CU_FUNC_ATTRIBUTE_MAX && value >= 0,
            CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

API cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                         CUdevice device) {
    REQUIRE(device >= 0 && device < driver.device_count, CUDA_ERROR_INVALID_DEVICE);
    return cuFuncSetAttribute((CUfunction)kernel, attribute, value);
}

API cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
    REQUIRE(function != NULL && (unsigned)config < 4, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

API cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function) {
    REQUIRE(state != NULL && function != NULL, CUDA_ERROR_INVALID_VALUE);
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}

API cuFuncLoad(CUfunction function) {
    REQUIRE(function != NULL, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

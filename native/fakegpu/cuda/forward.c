/*
 * Functions that only call another: old names of one ABI, the 32-bit ABI of
 * 2007 and the twins for per-thread streams. forward.def lists them.
 */
#include "driver.h"

/* The targets are defined in other files: declared here as the program's <cuda.h> would. */
#define ADDRESS                         CUdeviceptr
#define SIZE                            size_t
#define FORWARD(name, target, ...)      API target(__VA_ARGS__);
#define FORWARD_TWIN(name, target, ...) API target(__VA_ARGS__);
#include "forward.def"
#undef ADDRESS
#undef SIZE
#undef FORWARD
#undef FORWARD_TWIN

/* A list of types as parameters a, b, c, and those as arguments. */
#define COUNT(...) COUNT_(__VA_ARGS__, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)
#define COUNT_(a, b, c, d, e, f, g, h, i, j, k, n, ...) n
#define JOIN(left, right)                               JOIN_(left, right)
#define JOIN_(left, right)                              left##right
#define PARAMETERS(...)                         JOIN(PARAMETERS_, COUNT(__VA_ARGS__))(__VA_ARGS__)
#define ARGUMENTS(as, ...)                      JOIN(ARGUMENTS_, COUNT(__VA_ARGS__))(as)
#define PARAMETERS_1(A)                         A a
#define PARAMETERS_2(A, B)                      PARAMETERS_1(A), B b
#define PARAMETERS_3(A, B, C)                   PARAMETERS_2(A, B), C c
#define PARAMETERS_4(A, B, C, D)                PARAMETERS_3(A, B, C), D d
#define PARAMETERS_5(A, B, C, D, E)             PARAMETERS_4(A, B, C, D), E e
#define PARAMETERS_6(A, B, C, D, E, F)          PARAMETERS_5(A, B, C, D, E), F f
#define PARAMETERS_7(A, B, C, D, E, F, G)       PARAMETERS_6(A, B, C, D, E, F), G g
#define PARAMETERS_8(A, B, C, D, E, F, G, H)    PARAMETERS_7(A, B, C, D, E, F, G), H h
#define PARAMETERS_9(A, B, C, D, E, F, G, H, I) PARAMETERS_8(A, B, C, D, E, F, G, H), I i
#define PARAMETERS_10(A, B, C, D, E, F, G, H, I, J) PARAMETERS_9(A, B, C, D, E, F, G, H, I), J j
#define PARAMETERS_11(A, B, C, D, E, F, G, H, I, J, K)                                             \
    PARAMETERS_10(A, B, C, D, E, F, G, H, I, J), K k
#define ARGUMENTS_1(as)  as(a)
#define ARGUMENTS_2(as)  ARGUMENTS_1(as), as(b)
#define ARGUMENTS_3(as)  ARGUMENTS_2(as), as(c)
#define ARGUMENTS_4(as)  ARGUMENTS_3(as), as(d)
#define ARGUMENTS_5(as)  ARGUMENTS_4(as), as(e)
#define ARGUMENTS_6(as)  ARGUMENTS_5(as), as(f)
#define ARGUMENTS_7(as)  ARGUMENTS_6(as), as(g)
#define ARGUMENTS_8(as)  ARGUMENTS_7(as), as(h)
#define ARGUMENTS_9(as)  ARGUMENTS_8(as), as(i)
#define ARGUMENTS_10(as) ARGUMENTS_9(as), as(j)
#define ARGUMENTS_11(as) ARGUMENTS_10(as), as(k)

#define SAME(argument) (argument)
/* An argument that is a stream becomes the thread's own if it is 0. */
#define OF_THREAD(argument)                                                                        \
    _Generic((argument),                                                                           \
        CUstream: per_thread(_Generic((argument), CUstream: (argument), default: NULL)),           \
        default: (argument))

#define ADDRESS CUdeviceptr_v1
#define SIZE    unsigned int
#define FORWARD(name, target, ...)                                                                 \
    API name(PARAMETERS(__VA_ARGS__)) {                                                            \
        return target(ARGUMENTS(SAME, __VA_ARGS__));                                               \
    }
#define FORWARD_TWIN(name, target, ...)                                                            \
    API name(PARAMETERS(__VA_ARGS__)) {                                                            \
        return target(ARGUMENTS(OF_THREAD, __VA_ARGS__));                                          \
    }
#include "forward.def"

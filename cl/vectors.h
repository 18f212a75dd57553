/* Vectors of the kernels for CPUs, element by element of which the work is the same. Build option
 * LANES, 8 or 16: the floats in a register. */
#include "transpose.h"
#include "types.h"

#if LANES == 16
typedef float16 floats;
typedef int16 ints;
typedef uchar16 uchars;
#define as_ints as_int16
#define as_floats as_float16
#define convert_ints convert_int16
#define convert_floats convert_float16
/* LANES elements of a buffer from i on as float32, and back, as LOAD and STORE. */
#define LOAD_LANES(type, buffer, i)                                                                \
    (float16)(LOAD8(type, buffer, i), LOAD8(type, buffer, (i) + 8))
#define STORE_LANES(type, x, buffer, i)                                                            \
    do {                                                                                           \
        STORE8(type, (x).lo, buffer, i);                                                           \
        STORE8(type, (x).hi, buffer, (i) + 8);                                                     \
    } while (0)
#define VLOAD_LANES vload16
#define VSTORE_LANES vstore16
#define transpose_lanes transpose_16
#else
typedef float8 floats;
typedef int8 ints;
typedef uchar8 uchars;
#define as_ints as_int8
#define as_floats as_float8
#define convert_ints convert_int8
#define convert_floats convert_float8
#define LOAD_LANES LOAD8
#define STORE_LANES STORE8
#define VLOAD_LANES vload8
#define VSTORE_LANES vstore8
#define transpose_lanes transpose_8
#endif

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
#define LOAD_LANES(type, buffer, i) TYPE_JOIN(lanes_load_, type)(buffer, i)
#define STORE_LANES(type, x, buffer, i) TYPE_JOIN(lanes_store_, type)(x, buffer, i)
#define VLOAD_LANES vload16
#define VSTORE_LANES vstore16
#define transpose_lanes transpose_16

static float16 lanes_load_1(__global const float *buffer, ulong i)
{
    return vload16(0, buffer + i);
}

static void lanes_store_1(float16 x, __global float *buffer, ulong i)
{
    vstore16(x, 0, buffer + i);
}

#define LANES_OF_HALF(type)                                                                        \
    static float16 lanes_load_##type(__global const ushort *buffer, ulong i)                       \
    {                                                                                              \
        return (float16)(LOAD8(type, buffer, i), LOAD8(type, buffer, i + 8));                      \
    }                                                                                              \
    static void lanes_store_##type(float16 x, __global ushort *buffer, ulong i)                    \
    {                                                                                              \
        STORE8(type, x.lo, buffer, i);                                                             \
        STORE8(type, x.hi, buffer, i + 8);                                                         \
    }
LANES_OF_HALF(2)
LANES_OF_HALF(3)
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

/* Elements as they are stored, and as float32, which is all that is computed in. A type is 1
 * float32, 2 float16 or 3 bfloat16, as mha_type. Needs no cl_khr_fp16: both halves are kept as
 * ushort, and vload_half is in every OpenCL C. */
#define TYPE_STORED_1 float
#define TYPE_STORED_2 ushort
#define TYPE_STORED_3 ushort
#define TYPE_PASTE(a, b) a##b
#define TYPE_JOIN(a, b) TYPE_PASTE(a, b)

/* The element type of a buffer: __global const STORED(KEY_TYPE) *key. */
#define STORED(type) TYPE_JOIN(TYPE_STORED_, type)
/* Element i of a buffer as float32; eight from i on; and float32 rounded to nearest even into it.
 */
#define LOAD(type, buffer, i) TYPE_JOIN(type_load_, type)(buffer, i)
#define LOAD8(type, buffer, i) TYPE_JOIN(type_load8_, type)(buffer, i)
#define STORE(type, x, buffer, i) TYPE_JOIN(type_store_, type)(x, buffer, i)
#define STORE8(type, x, buffer, i) TYPE_JOIN(type_store8_, type)(x, buffer, i)

static float type_load_1(__global const float *buffer, ulong i)
{
    return buffer[i];
}

static float type_load_2(__global const ushort *buffer, ulong i)
{
    return vload_half(0, (__global const half *)(buffer + i));
}

static float type_load_3(__global const ushort *buffer, ulong i)
{
    return as_float((uint)buffer[i] << 16);
}

static float8 type_load8_1(__global const float *buffer, ulong i)
{
    return vload8(0, buffer + i);
}

static float8 type_load8_2(__global const ushort *buffer, ulong i)
{
    /* By way of an aligned copy, as PoCL's vload_half8 takes any address for aligned. */
    const ushort8 bits = vload8(0, buffer + i);
    return vload_half8(0, (const half *)&bits);
}

static float8 type_load8_3(__global const ushort *buffer, ulong i)
{
    return as_float8(convert_uint8(vload8(0, buffer + i)) << 16);
}

static void type_store_1(float x, __global float *buffer, ulong i)
{
    buffer[i] = x;
}

static void type_store_2(float x, __global ushort *buffer, ulong i)
{
    vstore_half_rte(x, 0, (__global half *)(buffer + i));
}

static void type_store_3(float x, __global ushort *buffer, ulong i)
{
    /* Half a step, and a bit more where the last kept bit is odd, carries into the kept bits. A NaN
     * must not round up to an infinity. */
    const uint bits = as_uint(x);
    const uint rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    buffer[i] = (ushort)(isnan(x) ? bits >> 16 | 0x40u : rounded);
}

static void type_store8_1(float8 x, __global float *buffer, ulong i)
{
    vstore8(x, 0, buffer + i);
}

static void type_store8_2(float8 x, __global ushort *buffer, ulong i)
{
    ushort8 bits;
    vstore_half8_rte(x, 0, (half *)&bits); /* aligned, see type_load8_2 */
    vstore8(bits, 0, buffer + i);
}

static void type_store8_3(float8 x, __global ushort *buffer, ulong i)
{
    const uint8 bits = as_uint8(x);
    const uint8 rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    vstore8(convert_ushort8(select(rounded, bits >> 16 | 0x40u, isnan(x))), 0, buffer + i);
}

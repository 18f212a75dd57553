/* The operands of cl/attend_gpu.cl's products: tiles in registers, and slices in local memory that
 * a work-group fills together. Its build options are those of attend_gpu.cl.
 *
 * A tile is [column][quad of rows], indexed by constants only, or a GPU would keep it in memory:
 * the functions that have one are inlined, and their loops unrolled. A slice has SLICE lines, dims
 * in the product of query and key and keys in that of probs and values; a line has an element of
 * each row or column of the work-group's tile. */
#if QUADS != 1 && QUADS != 2
#error "QUADS: a work-item has 4 or 8 rows"
#endif
#if SLICE % LANES || SLICE % SCORE_STEPS || SLICE % VALUE_STEPS
#error "a slice is cut evenly, among work-items and in steps"
#endif
#if SWIZZLED && (SCORE_STEPS > 4 || 4 % SCORE_STEPS)
#error "the lines of a step are swizzled alike, which is so of 4"
#endif
#define HIGH (16 / QUADS)
#define GROUP (LANES * HIGH)
#define ROWS 64
#define WIDE (8 * LANES)
/* Columns of a tile of scores in a slice of keys. */
#define SHARE (SLICE / LANES)

#define INLINED static inline __attribute__((always_inline))
#define UNROLL _Pragma("unroll")
#define EACH_QUAD(r) UNROLL for (int r = 0; r < QUADS; r++)
/* Not a loop: where registers are short, Intel's compiler tries again with its loops left as they
 * are. */
#define EACH_COLUMN(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

/* From one line to the next, in float4: one more than the line, since the lines of query, key and
 * probs are written element by element across. */
#define ROW_PITCH (ROWS / 4 + 1)
#define WIDE_PITCH (WIDE / 4 + 1)
/* Where that is not enough to keep such writes off one bank, the quads of each line of query and
 * key change places too: quad n of line l is at n ^ SWIZZLE(l). */
#define SWIZZLE(line) (SWIZZLED ? (line) / 4 % (LANES < 8 ? LANES : 8) : 0)

/* Key or value dim of column c of work-item x, from the work-group's first. */
static int column_of(int x, int c)
{
    return 4 * x + c % 4 + c / 4 * 4 * LANES;
}

INLINED void clear_tile(float4 tile[8][QUADS])
{
#define CLEAR(c) EACH_QUAD(r) tile[c][r] = (float4)(0.0f);
    EACH_COLUMN(CLEAR)
}

/* Four elements from `from` on of a row of `dims`, as float32. Past its end it gives elements of
 * the row again: a clamped address is cheaper than a branch. whole: no quad crosses the end.
 * aligned: each quad's address is a multiple of its size, so that one load does where vload4, which
 * may not take that for granted, makes four. */
#define QUAD(type, buffer, row, from, dims, whole, aligned)                                        \
    (!(whole) ? (float4)(LOAD(type, buffer, (row) + min(from, (dims) - 1)),                        \
                         LOAD(type, buffer, (row) + min((from) + 1, (dims) - 1)),                  \
                         LOAD(type, buffer, (row) + min((from) + 2, (dims) - 1)),                  \
                         LOAD(type, buffer, (row) + min((from) + 3, (dims) - 1)))                  \
     : (aligned) ? TYPE_JOIN(quad_aligned_, type)(buffer + (row) + min(from, (dims) - 4))          \
                 : TYPE_JOIN(quad_any_, type)(buffer + (row) + min(from, (dims) - 4)))

static float4 quad_any_1(__global const float *from)
{
    return vload4(0, from);
}

static float4 quad_any_2(__global const ushort *from)
{
    /* By way of an aligned copy, as PoCL's vload_half4 takes any address for aligned. */
    const ushort4 bits = vload4(0, from);
    return vload_half4(0, (const half *)&bits);
}

static float4 quad_any_3(__global const ushort *from)
{
    return as_float4(convert_uint4(vload4(0, from)) << 16);
}

static float4 quad_aligned_1(__global const float *from)
{
    return *(__global const float4 *)from;
}

static float4 quad_aligned_2(__global const ushort *from)
{
    const ushort4 bits = *(__global const ushort4 *)from;
    return vload_half4(0, (const half *)&bits);
}

static float4 quad_aligned_3(__global const ushort *from)
{
    return as_float4(convert_uint4(*(__global const ushort4 *)from) << 16);
}

/* slice[d][i] = factor times element d0 + d of row i, 0 beyond HEAD_DIM. Rows from `count` on
 * repeat the last one: they are excluded, or not written. */
#define STAGE_TURNED(type, slice, pitch, rows, factor, from, stride, count, d0, aligned)           \
    _Pragma("unroll 2") for (int n = 0; n < rows * SLICE / 4 / GROUP; n++)                         \
    {                                                                                              \
        const int e = n * GROUP + (int)get_local_id(0);                                            \
        const int i = e / (SLICE / 4);                                                             \
        const int d = e % (SLICE / 4) * 4;                                                         \
        const float4 q = factor                                                                    \
                         * QUAD(type, from, (uint)min(i, (count) - 1) * stride, d0 + d, HEAD_DIM,  \
                                HEAD_DIM % 4 == 0, aligned);                                       \
        const int left = HEAD_DIM % SLICE ? HEAD_DIM - d0 - d : 4;                                 \
        __local float *to = slice + d * pitch + ((i / 4 ^ SWIZZLE(d)) * 4 + i % 4);                \
        to[0] = left > 0 ? q.x : 0.0f;                                                             \
        to[pitch] = left > 1 ? q.y : 0.0f;                                                         \
        to[2 * pitch] = left > 2 ? q.z : 0.0f;                                                     \
        to[3 * pitch] = left > 3 ? q.w : 0.0f;                                                     \
    }

INLINED void stage_query(__local float *slice, __global const STORED(QUERY_TYPE) *query,
                         ulong stride, int count, int d0, float factor, int aligned)
{
    if (aligned)
        STAGE_TURNED(QUERY_TYPE, slice, ROW_PITCH * 4, ROWS, factor, query, stride, count, d0, 1)
    else
        STAGE_TURNED(QUERY_TYPE, slice, ROW_PITCH * 4, ROWS, factor, query, stride, count, d0, 0)
}

INLINED void stage_key(__local float *slice, __global const STORED(KEY_TYPE) *key, ulong stride,
                       int count, int d0, int aligned)
{
    if (aligned)
        STAGE_TURNED(KEY_TYPE, slice, WIDE_PITCH * 4, WIDE, 1.0f, key, stride, count, d0, 1)
    else
        STAGE_TURNED(KEY_TYPE, slice, WIDE_PITCH * 4, WIDE, 1.0f, key, stride, count, d0, 0)
}

/* Infinities and NaNs are told by the bits of their exponents, WILD of both, since a compiler may
 * hold that there are none. */
#define WILD 0x7f800000
#define EXPONENTS(x) (as_int4(x) & WILD)

/* Values of the keys of the columns from c0 on, in the order in which share_tile lays probs down.
 * tamed: 0 where they are infinite or NaN. */
#define STAGE_VALUE(slice, value, stride, count, dims, c0, tamed, aligned)                         \
    _Pragma("unroll 2") for (int m = 0; m < SLICE * WIDE / 4 / GROUP; m++)                         \
    {                                                                                              \
        const int e = m * GROUP + (int)get_local_id(0);                                            \
        const int n = e / (WIDE / 4);                                                              \
        const int d = e % (WIDE / 4);                                                              \
        const int j = column_of(n % LANES, c0 + n / LANES);                                        \
        const float4 v = QUAD(KEY_TYPE, value, (uint)min(j, (count) - 1) * stride, 4 * d, dims,    \
                              VALUE_DIM % 4 == 0, aligned);                                        \
        slice[n * WIDE_PITCH + d] = select(v, (float4)(0.0f), (EXPONENTS(v) == WILD) & -(tamed));  \
    }

INLINED void stage_value(__local float4 *slice, __global const STORED(KEY_TYPE) *value,
                         ulong stride, int count, int dims, int c0, int tamed, int aligned)
{
    if (aligned)
        STAGE_VALUE(slice, value, stride, count, dims, c0, tamed, 1)
    else
        STAGE_VALUE(slice, value, stride, count, dims, c0, tamed, 0)
}

/* Columns c0 .. c0 + SHARE - 1 of all work-items' tiles: to the slice, and back from it. The loop
 * over c0 is too long to unroll, but a tile's indices are constants: so each column asks whether it
 * is among them. */
INLINED void share_tile(__local float4 *slice, float4 tile[8][QUADS], int c0, int x, int y)
{
#define SHARE_COLUMN(c)                                                                            \
    if (c / SHARE * SHARE == c0)                                                                   \
        EACH_QUAD(r) slice[(c % SHARE * LANES + x) * ROW_PITCH + r * HIGH + y] = tile[c][r];
    EACH_COLUMN(SHARE_COLUMN)
}

INLINED void take_tile(float4 tile[8][QUADS], __local const float4 *slice, int c0, int x, int y)
{
#define TAKE_COLUMN(c)                                                                             \
    if (c / SHARE * SHARE == c0)                                                                   \
        EACH_QUAD(r) tile[c][r] = slice[(c % SHARE * LANES + x) * ROW_PITCH + r * HIGH + y];
    EACH_COLUMN(TAKE_COLUMN)
}

/* tile += rows slice^T wide slice, at the place of work-item (x, y). `steps` lines at once hide the
 * latency of local memory; more would not fit the registers. The inner loop has constant bounds,
 * since Intel's compiler does not unroll by a number. swizzled: the slices are of query and key. */
INLINED void multiply(float4 tile[8][QUADS], __local const float4 *rows, __local const float4 *wide,
                      int x, int y, int steps, int swizzled)
{
    _Pragma("unroll 1") for (int n = 0; n < SLICE; n += steps)
    {
        const int moved = swizzled ? SWIZZLE(n) : 0;
        __local const float4 *from_rows = rows + n * ROW_PITCH + (y ^ moved);
        __local const float4 *from_wide = wide + n * WIDE_PITCH + (x ^ moved);
        UNROLL for (int k = 0; k < steps; k++)
        {
            float4 a[QUADS], b[2];
            EACH_QUAD(r)
                a[r] = from_rows[k * ROW_PITCH + r * HIGH];
            UNROLL for (int q = 0; q < 2; q++)
                b[q] = from_wide[k * WIDE_PITCH + q * LANES];
            UNROLL for (int q = 0; q < 2; q++)
                EACH_QUAD(r)
                {
                    tile[4 * q][r] += b[q].x * a[r];
                    tile[4 * q + 1][r] += b[q].y * a[r];
                    tile[4 * q + 2][r] += b[q].z * a[r];
                    tile[4 * q + 3][r] += b[q].w * a[r];
                }
        }
    }
}

/* output += probs value for the values that are infinite or NaN, of which nothing may come where
 * the prob is 0, as of an excluded key: 0 times them is NaN. Rare, so it is to be short; and no
 * other branch of multiply, since that would hold the tile in registers twice. */
INLINED void add_wild(float4 out[8][QUADS], __local const float4 *probs,
                      __global const STORED(KEY_TYPE) *value, ulong stride, int count, int dims,
                      int c0, int x, int y)
{
#define ADD_WILD(c)                                                                                \
    {                                                                                              \
        const float v = LOAD(KEY_TYPE, row, min(column_of(x, c), dims - 1));                       \
        if ((as_int(v) & WILD) == WILD)                                                            \
            EACH_QUAD(r)                                                                           \
            {                                                                                      \
                const float4 p = probs[n * ROW_PITCH + r * HIGH + y];                              \
                out[c][r] += select(p * v, (float4)(0.0f), p == 0.0f);                             \
            }                                                                                      \
    }
    _Pragma("unroll 1") for (int n = 0; n < SLICE; n++)
    {
        const int j = column_of(n % LANES, c0 + n / LANES);
        __global const STORED(KEY_TYPE) *row = value + (uint)min(j, count - 1) * stride;
        EACH_COLUMN(ADD_WILD)
    }
}

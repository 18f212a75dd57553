/* Transposes in registers, for CPU kernels. */

/* to[i] = column i of an 8 x 8 matrix of rows. */
static void transpose_8(float8 to[8], const float8 from[8])
{
    float8 pair[8], quad[8];
    #pragma unroll
    for (int i = 0; i < 8; i += 2) {
        const float8 x = from[i], y = from[i + 1];
        pair[i] = (float8)(x.s0, y.s0, x.s1, y.s1, x.s4, y.s4, x.s5, y.s5);
        pair[i + 1] = (float8)(x.s2, y.s2, x.s3, y.s3, x.s6, y.s6, x.s7, y.s7);
    }
    #pragma unroll
    for (int i = 0; i < 8; i += 4)
        #pragma unroll
        for (int j = 0; j < 2; j++) {
            const float8 x = pair[i + j], y = pair[i + j + 2];
            quad[i + 2 * j] = (float8)(x.s01, y.s01, x.s45, y.s45);
            quad[i + 2 * j + 1] = (float8)(x.s23, y.s23, x.s67, y.s67);
        }
    #pragma unroll
    for (int j = 0; j < 4; j++) {
        to[j] = (float8)(quad[j].lo, quad[j + 4].lo);
        to[j + 4] = (float8)(quad[j].hi, quad[j + 4].hi);
    }
}

/* The elements of x and y in turns, 16 and 16: a perfect shuffle. Done log2(rows) times to rows i
 * and i + rows / 2 of 16 elements, it transposes. */
#define SHUFFLE_LOW(type, x, y)                                                                    \
    (type)(x.s0, y.s0, x.s1, y.s1, x.s2, y.s2, x.s3, y.s3, x.s4, y.s4, x.s5, y.s5, x.s6, y.s6,     \
           x.s7, y.s7)
#define SHUFFLE_HIGH(type, x, y)                                                                   \
    (type)(x.s8, y.s8, x.s9, y.s9, x.sa, y.sa, x.sb, y.sb, x.sc, y.sc, x.sd, y.sd, x.se, y.se,     \
           x.sf, y.sf)
#define SHUFFLE_ROWS(type, rows, to, from)                                                         \
    _Pragma("unroll") for (int i = 0; i < rows / 2; i++)                                           \
    {                                                                                              \
        to[2 * i] = SHUFFLE_LOW(type, from[i], from[i + rows / 2]);                                \
        to[2 * i + 1] = SHUFFLE_HIGH(type, from[i], from[i + rows / 2]);                           \
    }

/* to[i] = column i of a 16 x 16 matrix of rows. */
static void transpose_16(float16 to[16], const float16 from[16])
{
    float16 other[16];
    SHUFFLE_ROWS(float16, 16, other, from)
    SHUFFLE_ROWS(float16, 16, to, other)
    SHUFFLE_ROWS(float16, 16, other, to)
    SHUFFLE_ROWS(float16, 16, to, other)
}

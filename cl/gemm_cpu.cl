/* Matrix products for CPUs, c = activate(alpha a b + beta c + bias) for each batch: ROWS x COLUMNS
 * of sums stay in registers, 6 x 16 in those of AVX2, and b is read as panels [k][COLUMNS], one after
 * the other in memory ("Anatomy of High-Performance Matrix Multiplication", 2008). A work-group is one
 * work-item; SIMD lanes are columns, so every sum runs in the order of its terms.
 *
 * Build options:
 * LANES   see vectors.h
 * ACTIVATION  see activate.h, whose alpha is slope
 * ROWS    of a tile of sums; COLUMNS is 2 * LANES
 * A_TYPE, B_TYPE, C_TYPE, BIAS_TYPE  see types.h
 * PACKED  1: b is what gemm_cpu_pack has made of it, float32 [panel][k][COLUMNS] with zeros past the
 *         last column; 0: the work-item packs a piece at a time into local memory
 * TURNED  1: a is stored [k][m] and goes to local memory as [tile][k][ROWS]; 0: a is read in place,
 *         or where it is of a half type goes to local memory as float32 rows
 * HEIGHT  the most rows of a work-item that puts a, or sums, in local memory; a multiple of ROWS
 * WIDTH   the most columns of one that holds its sums there, a multiple of COLUMNS
 * DEPTH   terms at a time, of what lies in local memory. Meanwhile c holds the sums; a c of a half
 *         type would round them, so that they are held in local memory */
#include "vectors.h"

#if ACTIVATION
#include "power.h"
#define ACTIVATE_REAL floats
#define ACTIVATE_EXP exponential
#include "activate.h"
#endif

#define COLUMNS (2 * LANES)
#define STAGED (TURNED || A_TYPE != 1)
#define HELD (C_TYPE != 1)
#define KNOWS_END (HELD || ACTIVATION)

#if PACKED
#define B_MEMORY __global
#define B_GIVEN float
#else
#define B_MEMORY __local
#define B_GIVEN STORED(B_TYPE)
#endif
#if STAGED
#define A_MEMORY __local
#else
#define A_MEMORY __global
#endif

/* A panel of b: to [depth][COLUMNS] from b [depth][columns] by its strides; zeros past the last
 * column. */
static void pack_panel(B_MEMORY float *to, __global const STORED(B_TYPE) *b, ulong b_row,
                       ulong b_column, int columns, int depth)
{
    int k = 0;
    if (columns == COLUMNS && b_column == 1) {
        for (; k < depth; k++) {
            VSTORE_LANES(LOAD_LANES(B_TYPE, b, k * b_row), 0, to + k * COLUMNS);
            VSTORE_LANES(LOAD_LANES(B_TYPE, b, k * b_row + LANES), 1, to + k * COLUMNS);
        }
    } else if (columns == COLUMNS && b_row == 1) {
        for (; k + LANES <= depth; k += LANES)
            for (int j = 0; j < COLUMNS; j += LANES) {
                floats x[LANES], y[LANES];
                #pragma unroll
                for (int i = 0; i < LANES; i++)
                    x[i] = LOAD_LANES(B_TYPE, b, (j + i) * b_column + k);
                transpose_lanes(y, x);
                #pragma unroll
                for (int i = 0; i < LANES; i++)
                    VSTORE_LANES(y[i], 0, to + (k + i) * COLUMNS + j);
            }
    }
    for (; k < depth; k++)
        for (int j = 0; j < COLUMNS; j++)
            to[k * COLUMNS + j] = j < columns ? LOAD(B_TYPE, b, k * b_row + j * b_column) : 0.0f;
}

/* What becomes of the sums on their way to c. */
typedef struct finish {
    float alpha, beta;
    floats bias[2];
#if HELD
    int begins; /* whether this piece of k is the first */
#endif
#if KNOWS_END
    int ends; /* whether it is the last */
#endif
#if ACTIVATION
    float slope; /* the activation's alpha */
#endif
} finish;

#if ACTIVATION
static void activate_part(float part[COLUMNS], float slope)
{
    for (int v = 0; v < 2; v++)
        VSTORE_LANES(activate(VLOAD_LANES(v, part), slope), v, part);
}
#endif

/* The part of a row of c that lies in this panel. */
static void store_row(__global STORED(C_TYPE) *c, int columns, const floats sum[2],
                      const finish *last)
{
    if (columns == COLUMNS) {
        #pragma unroll
        for (int v = 0; v < 2; v++) {
            floats x = last->alpha * sum[v];
            if (last->beta != 0.0f)
                x += last->beta * LOAD_LANES(C_TYPE, c, v * LANES);
            x += last->bias[v];
#if ACTIVATION && HELD
            x = activate(x, last->slope);
#endif
            STORE_LANES(C_TYPE, x, c, v * LANES);
        }
    } else {
        float part[COLUMNS];
        #pragma unroll
        for (int v = 0; v < 2; v++)
            VSTORE_LANES(last->alpha * sum[v] + last->bias[v], v, part);
        if (last->beta != 0.0f)
            for (int j = 0; j < columns; j++)
                part[j] += last->beta * LOAD(C_TYPE, c, j);
#if ACTIVATION && HELD
        activate_part(part, last->slope);
#endif
        for (int j = 0; j < columns; j++)
            STORE(C_TYPE, part[j], c, j);
    }
}

#if ACTIVATION && !HELD
/* What store_row has stored, while it is near: in the tile's own, unrolled loop each row would have
 * all instructions of the function. */
static void activate_rows(__global STORED(C_TYPE) *c, ulong c_row, int rows, int columns,
                          float slope)
{
    for (int r = 0; r < rows; r++, c += c_row) {
        if (columns == COLUMNS) {
            for (int j = 0; j < COLUMNS; j += LANES) {
                const floats x = activate(LOAD_LANES(C_TYPE, c, j), slope);
                STORE_LANES(C_TYPE, x, c, j);
            }
        } else {
            float part[COLUMNS];
            for (int j = 0; j < COLUMNS; j++)
                part[j] = j < columns ? LOAD(C_TYPE, c, j) : 0.0f;
            activate_part(part, slope);
            for (int j = 0; j < columns; j++)
                STORE(C_TYPE, part[j], c, j);
        }
    }
}
#endif

/* A tile of c: `rows` x `columns`. Missing rows repeat the last one, which costs nothing and is not
 * written. held [rows][WIDTH]: the sums of the pieces of k before this one, and after it. Inlined, so
 * that the sums stay in registers; a call of it, PoCL 3.1 drops. */
static inline __attribute__((always_inline))
void make_tile(__global STORED(C_TYPE) *c, ulong c_row, int rows, int columns,
               A_MEMORY const float *a, ulong a_row, B_MEMORY const float *b, int depth,
#if HELD
               __local float *held,
#endif
               const finish *last)
{
    floats sum[ROWS][2];
#if TURNED
    #define FACTOR(r) a[k * ROWS + r]
#else
    A_MEMORY const float *row[ROWS];
    #pragma unroll
    for (int r = 0; r < ROWS; r++)
        row[r] = a + min(r, rows - 1) * a_row;
    #define FACTOR(r) row[r][k]
#endif
    #pragma unroll
    for (int r = 0; r < ROWS; r++)
        sum[r][0] = sum[r][1] = (floats)(0.0f);
#if HELD
    #pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int line = min(r, rows - 1) * WIDTH;
        sum[r][0] = last->begins ? sum[r][0] : VLOAD_LANES(0, held + line);
        sum[r][1] = last->begins ? sum[r][1] : VLOAD_LANES(1, held + line);
    }
#endif
    #pragma unroll 2
    for (int k = 0; k < depth; k++) {
        const floats y0 = VLOAD_LANES(0, b + k * COLUMNS);
        const floats y1 = VLOAD_LANES(1, b + k * COLUMNS);
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const floats x = (floats)(FACTOR(r));
            sum[r][0] += x * y0;
            sum[r][1] += x * y1;
        }
    }
    #pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r < rows) {
#if HELD
            VSTORE_LANES(sum[r][0], 0, held + r * WIDTH);
            VSTORE_LANES(sum[r][1], 1, held + r * WIDTH);
#else
            store_row(c + r * c_row, columns, sum[r], last);
#endif
        }
#if HELD
    for (int r = 0; last->ends && r < rows; r++) {
        const floats whole[2] = { VLOAD_LANES(0, held + r * WIDTH),
                                  VLOAD_LANES(1, held + r * WIDTH) };
        store_row(c + r * c_row, columns, whole, last);
    }
#elif ACTIVATION
    if (last->ends)
        activate_rows(c, c_row, rows, columns, last->slope);
#endif
}

#if TURNED
/* Rows of a, stored [k][m], as tiles [depth][ROWS]; the last tile repeats the last row. */
static void stage_rows(__local float *to, __global const STORED(A_TYPE) *a, ulong a_column,
                       int rows, int depth)
{
    for (int k = 0; k < depth; k++, a += a_column) {
        int i = 0;
        for (; i + ROWS <= rows; i += ROWS)
            #pragma unroll
            for (int r = 0; r < ROWS; r++)
                to[i * DEPTH + k * ROWS + r] = LOAD(A_TYPE, a, i + r);
        if (i < rows)
            for (int r = 0; r < ROWS; r++)
                to[i * DEPTH + k * ROWS + r] = LOAD(A_TYPE, a, min(i + r, rows - 1));
    }
}
#elif STAGED
/* Rows of a as rows [DEPTH]. */
static void stage_rows(__local float *to, __global const STORED(A_TYPE) *a, ulong a_row, int rows,
                       int depth)
{
    for (int i = 0; i < rows; i++, a += a_row, to += DEPTH) {
        int k = 0;
        for (; k + 8 <= depth; k += 8)
            vstore8(LOAD8(A_TYPE, a, k), 0, to + k);
        for (; k < depth; k++)
            to[k] = LOAD(A_TYPE, a, k);
    }
}
#endif

/* Biases are those of a panel, NULL for none. Field by field: an initialiser crashes rusticl. */
static finish finish_of(float alpha, float beta, __global const STORED(BIAS_TYPE) *bias,
                        int columns)
{
    finish last;
    float part[COLUMNS];
    for (int j = 0; j < COLUMNS; j++)
        part[j] = bias && j < columns ? LOAD(BIAS_TYPE, bias, j) : 0.0f;
    last.alpha = alpha;
    last.beta = beta;
    last.bias[0] = VLOAD_LANES(0, part);
    last.bias[1] = VLOAD_LANES(1, part);
    return last;
}

/* Work-group (t, g): block t of c, `height` rows x `width` columns, in batch g; a group goes on
 * with g + number of groups. width is a multiple of COLUMNS, at most WIDTH where sums are held, and
 * height one of ROWS, at most HEIGHT where local memory takes a or sums. Strides are those of rows
 * and columns of a [m][k] and b [k][n]; a_column is 1, with TURNED a_row. bias [n] or NULL. c is not
 * read where beta is 0. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm_cpu_multiply(__global const STORED(A_TYPE) *a, ulong a_offset, ulong a_batch, ulong a_row,
                       ulong a_column,
                       __global const B_GIVEN *b, ulong b_offset, ulong b_batch, ulong b_row,
                       ulong b_column,
                       __global STORED(C_TYPE) *c, ulong c_offset, ulong c_batch, ulong c_row,
                       __global const STORED(BIAS_TYPE) *bias, ulong bias_offset,
                       int batch, int m, int n, int k, int height, int width,
                       float alpha, float beta, float slope)
{
#if !PACKED
    __local float panel[DEPTH * COLUMNS];
#endif
#if STAGED
    __local float staged[HEIGHT * DEPTH];
#endif
#if HELD
    __local float held[HEIGHT * WIDTH];
#endif
    const int across = (n + width - 1) / width;
    const int i0 = (int)get_group_id(0) / across * height;
    const int j0 = (int)get_group_id(0) % across * width;
    const int rows = min(height, m - i0);
    const int end = min(j0 + width, n);

    for (int g = (int)get_group_id(1); g < batch; g += (int)get_num_groups(1)) {
        __global const STORED(A_TYPE) *from_a = a + a_offset + g * a_batch + i0 * a_row;
        __global const B_GIVEN *from_b = b + b_offset + g * b_batch;
        __global STORED(C_TYPE) *to = c + c_offset + g * c_batch + i0 * c_row;
        int k0 = 0;
        do { /* once for a k of 0 */
            const int depth = min(DEPTH, k - k0);
#if STAGED
            stage_rows(staged, from_a + k0 * a_column, TURNED ? a_column : a_row, rows, depth);
#endif
            for (int j = j0; j < end; j += COLUMNS) {
                const int columns = min(COLUMNS, end - j);
#if PACKED
                B_MEMORY const float *panel = from_b + (ulong)j * k + (ulong)k0 * COLUMNS;
#else
                pack_panel(panel, from_b + k0 * b_row + j * b_column, b_row, b_column, columns,
                           depth);
#endif
#if HELD
                finish last = finish_of(alpha, beta, bias ? bias + bias_offset + j : 0, columns);
                last.begins = k0 == 0;
#else
                finish last = k0 ? finish_of(alpha, 1.0f, 0, columns)
                                 : finish_of(alpha, beta, bias ? bias + bias_offset + j : 0,
                                             columns);
#endif
#if KNOWS_END
                last.ends = k0 + DEPTH >= k;
#endif
#if ACTIVATION
                last.slope = slope;
#endif
                for (int i = 0; i < rows; i += ROWS)
                    make_tile(to + i * c_row + j, c_row, min(ROWS, rows - i), columns,
#if TURNED
                              staged + i * DEPTH, 0,
#elif STAGED
                              staged + i * DEPTH, DEPTH,
#else
                              from_a + i * a_row + k0, a_row,
#endif
                              panel, depth,
#if HELD
                              held + i * WIDTH + (j - j0),
#endif
                              &last);
            }
            k0 += DEPTH;
        } while (k0 < k);
    }
}

#if PACKED
/* b [k][n] by its strides, as panels for gemm_cpu_multiply. Work-group t: panel t. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm_cpu_pack(__global const STORED(B_TYPE) *b, ulong b_offset, ulong b_row, ulong b_column,
                   __global float *to, ulong to_offset, int n, int k)
{
    const int j = (int)get_group_id(0) * COLUMNS;
    b += b_offset + j * b_column;
    to += to_offset + (ulong)j * k;
    for (int k0 = 0; k0 < k; k0 += DEPTH)
        pack_panel(to + (ulong)k0 * COLUMNS, b + k0 * b_row, b_row, b_column, min(COLUMNS, n - j),
                   min(DEPTH, k - k0));
}
#endif

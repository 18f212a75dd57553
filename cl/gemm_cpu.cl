/* Matrix products for CPUs, c = alpha a b + beta c + bias for each batch: ROWS x COLUMNS of sums
 * stay in registers, 6 x 16 in those of AVX2, and b is read as panels [k][COLUMNS], one after the
 * other in memory ("Anatomy of High-Performance Matrix Multiplication", 2008). A work-group is one
 * work-item; SIMD lanes are columns, so every sum runs in the order of its terms.
 *
 * Build options:
 * LANES   see vectors.h
 * ROWS    of a tile of sums; COLUMNS is 2 * LANES
 * PACKED  1: b is what gemm_cpu_pack has made of it, [panel][k][COLUMNS] with zeros past the last
 *         column; 0: the work-item packs a piece at a time into local memory
 * TURNED  1: a is stored [k][m] and goes to local memory as [tile][k][ROWS]; 0: a is read in place
 * HEIGHT  the most rows that a work-item turns, a multiple of ROWS
 * DEPTH   terms at a time, of what lies in local memory; c holds the sums meanwhile */
#include "vectors.h"

#define COLUMNS (2 * LANES)

#if PACKED
#define B_MEMORY __global
#else
#define B_MEMORY __local
#endif
#if TURNED
#define A_MEMORY __local
#else
#define A_MEMORY __global
#endif

/* A panel of b: to [depth][COLUMNS] from b [depth][columns] by its strides; zeros past the last
 * column. */
static void pack_panel(B_MEMORY float *to, __global const float *b, ulong b_row, ulong b_column,
                       int columns, int depth)
{
    int k = 0;
    if (columns == COLUMNS && b_column == 1) {
        for (; k < depth; k++) {
            VSTORE_LANES(VLOAD_LANES(0, b + k * b_row), 0, to + k * COLUMNS);
            VSTORE_LANES(VLOAD_LANES(1, b + k * b_row), 1, to + k * COLUMNS);
        }
    } else if (columns == COLUMNS && b_row == 1) {
        for (; k + LANES <= depth; k += LANES)
            for (int j = 0; j < COLUMNS; j += LANES) {
                floats x[LANES], y[LANES];
                #pragma unroll
                for (int i = 0; i < LANES; i++)
                    x[i] = VLOAD_LANES(0, b + (j + i) * b_column + k);
                transpose_lanes(y, x);
                #pragma unroll
                for (int i = 0; i < LANES; i++)
                    VSTORE_LANES(y[i], 0, to + (k + i) * COLUMNS + j);
            }
    }
    for (; k < depth; k++)
        for (int j = 0; j < COLUMNS; j++)
            to[k * COLUMNS + j] = j < columns ? b[k * b_row + j * b_column] : 0.0f;
}

/* What becomes of the sums on their way to c. */
typedef struct finish {
    float alpha, beta;
    floats bias[2];
} finish;

/* The part of a row of c that lies in this panel. */
static void store_row(__global float *c, int columns, const floats sum[2], const finish *last)
{
    if (columns == COLUMNS) {
        #pragma unroll
        for (int v = 0; v < 2; v++) {
            floats x = last->alpha * sum[v];
            if (last->beta != 0.0f)
                x += last->beta * VLOAD_LANES(v, c);
            VSTORE_LANES(x + last->bias[v], v, c);
        }
    } else {
        float part[COLUMNS], bias[COLUMNS];
        #pragma unroll
        for (int v = 0; v < 2; v++) {
            VSTORE_LANES(last->alpha * sum[v], v, part);
            VSTORE_LANES(last->bias[v], v, bias);
        }
        for (int j = 0; j < columns; j++) {
            float x = part[j];
            if (last->beta != 0.0f)
                x += last->beta * c[j];
            c[j] = x + bias[j];
        }
    }
}

/* A tile of c: `rows` x `columns`. Missing rows repeat the last one, which costs nothing and is not
 * written. */
static void make_tile(__global float *c, ulong c_row, int rows, int columns,
                      A_MEMORY const float *a, ulong a_row, B_MEMORY const float *b, int depth,
                      const finish *last)
{
    floats sum[ROWS][2];
#if TURNED
    #define FACTOR(r) a[k * ROWS + r]
#else
    __global const float *row[ROWS];
    #pragma unroll
    for (int r = 0; r < ROWS; r++)
        row[r] = a + min(r, rows - 1) * a_row;
    #define FACTOR(r) row[r][k]
#endif
    #pragma unroll
    for (int r = 0; r < ROWS; r++)
        sum[r][0] = sum[r][1] = (floats)(0.0f);
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
        if (r < rows)
            store_row(c + r * c_row, columns, sum[r], last);
}

#if TURNED
/* Rows of a, stored [k][m], as tiles [depth][ROWS]; the last tile repeats the last row. */
static void turn_rows(__local float *to, __global const float *a, ulong a_column, int rows,
                      int depth)
{
    for (int k = 0; k < depth; k++, a += a_column) {
        int i = 0;
        for (; i + ROWS <= rows; i += ROWS)
            #pragma unroll
            for (int r = 0; r < ROWS; r++)
                to[i * DEPTH + k * ROWS + r] = a[i + r];
        if (i < rows)
            for (int r = 0; r < ROWS; r++)
                to[i * DEPTH + k * ROWS + r] = a[min(i + r, rows - 1)];
    }
}
#endif

/* Biases are those of a panel, NULL for none. Field by field: an initialiser crashes rusticl. */
static finish finish_of(float alpha, float beta, __global const float *bias, int columns)
{
    finish last;
    float part[COLUMNS];
    for (int j = 0; j < COLUMNS; j++)
        part[j] = bias && j < columns ? bias[j] : 0.0f;
    last.alpha = alpha;
    last.beta = beta;
    last.bias[0] = VLOAD_LANES(0, part);
    last.bias[1] = VLOAD_LANES(1, part);
    return last;
}

/* Work-group (t, g): block t of c, `height` rows x `width` columns, in batch g; a group goes on
 * with g + number of groups. width is a multiple of COLUMNS, and height one of ROWS, at most HEIGHT
 * with TURNED. Strides are those of rows and columns of a [m][k] and b [k][n]; a_column is 1, with
 * TURNED a_row. bias [n] or NULL. c is not read where beta is 0. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm_cpu_multiply(__global const float *a, ulong a_offset, ulong a_batch, ulong a_row,
                       ulong a_column,
                       __global const float *b, ulong b_offset, ulong b_batch, ulong b_row,
                       ulong b_column,
                       __global float *c, ulong c_offset, ulong c_batch, ulong c_row,
                       __global const float *bias, ulong bias_offset,
                       int batch, int m, int n, int k, int height, int width,
                       float alpha, float beta)
{
#if !PACKED
    __local float panel[DEPTH * COLUMNS];
#endif
#if TURNED
    __local float turned[HEIGHT * DEPTH];
#endif
    const int across = (n + width - 1) / width;
    const int i0 = (int)get_group_id(0) / across * height;
    const int j0 = (int)get_group_id(0) % across * width;
    const int rows = min(height, m - i0);
    const int end = min(j0 + width, n);

    for (int g = (int)get_group_id(1); g < batch; g += (int)get_num_groups(1)) {
        __global const float *from_a = a + a_offset + g * a_batch + i0 * a_row;
        __global const float *from_b = b + b_offset + g * b_batch;
        __global float *to = c + c_offset + g * c_batch + i0 * c_row;
        int k0 = 0;
        do { /* once for a k of 0 */
            const int depth = min(DEPTH, k - k0);
#if TURNED
            turn_rows(turned, from_a + k0 * a_column, a_column, rows, depth);
#endif
            for (int j = j0; j < end; j += COLUMNS) {
                const int columns = min(COLUMNS, end - j);
#if PACKED
                B_MEMORY const float *panel = from_b + (ulong)j * k + (ulong)k0 * COLUMNS;
#else
                pack_panel(panel, from_b + k0 * b_row + j * b_column, b_row, b_column, columns,
                           depth);
#endif
                const finish last = k0 ? finish_of(alpha, 1.0f, 0, columns)
                                       : finish_of(alpha, beta, bias ? bias + bias_offset + j : 0,
                                                   columns);
                for (int i = 0; i < rows; i += ROWS)
                    make_tile(to + i * c_row + j, c_row, min(ROWS, rows - i), columns,
#if TURNED
                              turned + i * DEPTH, 0,
#else
                              from_a + i * a_row + k0, a_row,
#endif
                              panel, depth, &last);
            }
            k0 += DEPTH;
        } while (k0 < k);
    }
}

#if PACKED
/* b [k][n] by its strides, as panels for gemm_cpu_multiply. Work-group t: panel t. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm_cpu_pack(__global const float *b, ulong b_offset, ulong b_row, ulong b_column,
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

/* A product's half matrices as float32 ones in the workspace, for CLBlast. */
#include "widen.h"

#include "log.h"
#include "shape.h"

/* A matrix as it is stored. */
typedef struct matrix {
    mha_type type;
    size_t batch, rows, columns;
    const mha_operand *operand;
} matrix;

/* Those of a launch, or with the shape's sizes the largest of any. */
static void list_matrices(matrix list[MHA_WIDEN_MATRICES], const mha_gemm_shape *shape,
                          const mha_gemm_launch_args *args)
{
    const bool ta = shape->transpose_a, tb = shape->transpose_b;
    list[MHA_WIDEN_A] = (matrix){ shape->a_type, args->batch, ta ? args->k : args->m,
                                  ta ? args->m : args->k, &args->a };
    list[MHA_WIDEN_B] = (matrix){ shape->b_type, args->batch, tb ? args->n : args->k,
                                  tb ? args->k : args->n, &args->b };
    list[MHA_WIDEN_C] = (matrix){ shape->c_type, args->batch, args->m, args->n, &args->c };
}

bool mha_widen_is_needed(const mha_gemm_shape *shape)
{
    return mha_product_is_half(shape->a_type) || mha_product_is_half(shape->b_type) ||
           mha_product_is_half(shape->c_type);
}

mha_status mha_widen_setup(mha_widen_stage *widen, mha_context *context,
                           const mha_gemm_shape *shape, size_t *end)
{
    matrix list[MHA_WIDEN_MATRICES];
    const mha_gemm_launch_args most = {
        .batch = shape->batch, .m = shape->m, .n = shape->n, .k = shape->k
    };
    list_matrices(list, shape, &most);
    if (shape->shared_b)
        list[MHA_WIDEN_B].batch = 1;
    mha_status status = MHA_OK;
    for (int i = 0; !status && i < MHA_WIDEN_MATRICES; i++) {
        const matrix *x = &list[i];
        if (!mha_product_is_half(x->type))
            continue;
        const mha_size bytes =
            mha_size_of((size_t[]){ sizeof(float), x->batch, x->rows, x->columns }, 4);
        if (bytes.overflows)
            return mha_log_fail(&context->log, MHA_TOO_LARGE,
                                "a float32 copy of a matrix, which CLBlast needs, passes the "
                                "largest size_t");
        widen->regions[i] = mha_layout_add(end, bytes.value);
        if (i != MHA_WIDEN_C || shape->beta != 0)
            status = mha_convert_setup(&widen->into[i], context, x->type, MHA_FLOAT32);
        if (!status && i == MHA_WIDEN_C)
            status = mha_convert_setup(&widen->back, context, MHA_FLOAT32, x->type);
    }
    return status;
}

void mha_widen_release(mha_widen_stage *widen)
{
    for (int i = 0; i < MHA_WIDEN_MATRICES; i++)
        mha_convert_release(&widen->into[i]);
    mha_convert_release(&widen->back);
}

mha_gemm_launch_args mha_widen_args(const mha_widen_stage *widen, const mha_run *run,
                                    const mha_gemm_shape *shape, const mha_gemm_launch_args *args)
{
    mha_gemm_launch_args out = *args;
    mha_operand *const operands[MHA_WIDEN_MATRICES] = { &out.a, &out.b, &out.c };
    matrix list[MHA_WIDEN_MATRICES];
    list_matrices(list, shape, args);
    for (int i = 0; i < MHA_WIDEN_MATRICES; i++)
        if (mha_product_is_half(list[i].type))
            *operands[i] =
                (mha_operand){ .buffer = run->workspace,
                               .offset = widen->regions[i] / sizeof(float),
                               .row = list[i].columns,
                               .batch =
                                   list[i].operand->batch ? list[i].rows * list[i].columns : 0 };
    return out;
}

mha_status mha_widen_inputs(const mha_widen_stage *widen, mha_run *run, const mha_gemm_shape *shape,
                            const mha_gemm_launch_args *args)
{
    const mha_gemm_launch_args wide = mha_widen_args(widen, run, shape, args);
    const mha_operand *const operands[MHA_WIDEN_MATRICES] = { &wide.a, &wide.b, &wide.c };
    matrix list[MHA_WIDEN_MATRICES];
    list_matrices(list, shape, args);
    mha_status status = MHA_OK;
    for (int i = 0; !status && i < MHA_WIDEN_MATRICES; i++)
        if (widen->into[i].rows.cl)
            status =
                mha_convert_launch(&widen->into[i], run, list[i].operand->batch ? list[i].batch : 1,
                                   list[i].rows, list[i].columns, list[i].operand, operands[i]);
    return status;
}

mha_status mha_widen_output(const mha_widen_stage *widen, mha_run *run, const mha_gemm_shape *shape,
                            const mha_gemm_launch_args *args)
{
    const mha_gemm_launch_args wide = mha_widen_args(widen, run, shape, args);
    return mha_convert_launch(&widen->back, run, args->batch, args->m, args->n, &wide.c, &args->c);
}

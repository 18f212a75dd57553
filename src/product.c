/* What a matrix product is built and launched with, as the kernels of gemm and gemm_cpu list it. */
#include "product.h"

#include <stdio.h>
#include <string.h>

bool mha_product_is_half(mha_type type)
{
    return type == MHA_FLOAT16 || type == MHA_BFLOAT16;
}

const char *mha_product_options(char options[MHA_PRODUCT_OPTIONS], const mha_gemm_shape *shape)
{
    const mha_type types[] = { shape->a_type, shape->b_type, shape->c_type, shape->bias_type };
    int list[4];
    for (int i = 0; i < 4; i++)
        list[i] = (int)(types[i] ? types[i] : MHA_FLOAT32);
    snprintf(options, MHA_PRODUCT_OPTIONS,
             "-DA_TYPE=%d -DB_TYPE=%d -DC_TYPE=%d -DBIAS_TYPE=%d -DACTIVATION=%d", list[0], list[1],
             list[2], list[3], (int)shape->activation);
    return options;
}

void mha_product_args(mha_arg list[MHA_PRODUCT_ARGS], const mha_gemm_shape *shape,
                      const mha_gemm_launch_args *args)
{
    const bool ta = shape->transpose_a, tb = shape->transpose_b;
    const mha_arg all[MHA_PRODUCT_ARGS] = {
        MHA_ARG_MEM(args->a.buffer),
        MHA_ARG_SIZE(args->a.offset),
        MHA_ARG_SIZE(args->a.batch),
        MHA_ARG_SIZE(ta ? 1 : args->a.row),
        MHA_ARG_SIZE(ta ? args->a.row : 1),
        MHA_ARG_MEM(args->b.buffer),
        MHA_ARG_SIZE(args->b.offset),
        MHA_ARG_SIZE(args->b.batch),
        MHA_ARG_SIZE(tb ? 1 : args->b.row),
        MHA_ARG_SIZE(tb ? args->b.row : 1),
        MHA_ARG_MEM(args->c.buffer),
        MHA_ARG_SIZE(args->c.offset),
        MHA_ARG_SIZE(args->c.batch),
        MHA_ARG_SIZE(args->c.row),
        MHA_ARG_MEM(shape->bias ? args->bias.buffer : NULL),
        MHA_ARG_SIZE(args->bias.offset),
        MHA_ARG_INT(args->batch),
        MHA_ARG_INT(args->m),
        MHA_ARG_INT(args->n),
        MHA_ARG_INT(args->k),
    };
    memcpy(list, all, sizeof all);
}

void mha_product_factors(mha_arg list[MHA_PRODUCT_FACTORS], const mha_gemm_shape *shape)
{
    list[0] = (mha_arg)MHA_ARG_FLOAT(shape->alpha);
    list[1] = (mha_arg)MHA_ARG_FLOAT(shape->beta);
    list[2] = (mha_arg)MHA_ARG_FLOAT(shape->slope);
}

/* Operations that are an activation function, with or without a gate. */
#include "ops.h"

#include <string.h>

/* Packed tensors of one shape and type, as one row. */
static void run_activation(check *self, mha_activation_desc desc, const char *input_name,
                           const char *gate_name)
{
    const case_tensor *const input = check_need(self, input_name);
    const case_tensor *const gate = gate_name ? check_need(self, gate_name) : NULL;
    if (check_stopped(self))
        return;
    if (gate && (gate->count != input->count || gate->type != input->type))
        check_skip(self, "the interface takes a gate of the input's shape and type");
    if (input->strided || (gate && gate->strided))
        check_skip(self, "this program takes packed tensors only");
    const case_type output_type = check_output_type(self, "y", input->type);
    desc.rows = 1;
    desc.width = input->count;
    desc.uses = gate ? MHA_ACTIVATION_GATE : 0;
    desc.type = check_type(self, input->type);
    desc.output_type = check_type(self, output_type);
    desc.tiling = self->setup->tiling;
    const mha_activation_args args = { .input = check_input(self, input),
                                       .gate = check_input(self, gate),
                                       .output =
                                           check_output(self, "y", output_type, input->count, 1) };
    if (!check_ready(self))
        return;
    mha_activation *activation = NULL;
    const mha_call call = { .queue = self->setup->queue };
    check_status(self, mha_activation_create(&activation, self->setup->context, &desc),
                 "mha_activation_create");
    if (activation)
        check_status(self, mha_activation_enqueue(activation, &args, &call),
                     "mha_activation_enqueue");
    mha_activation_destroy(&activation);
}

/* Both forms of a GELU, by the key that names them; `exact` is what it says of the one with erf. */
static void run_gelu(check *self, const char *key, const char *exact)
{
    const char *const form = case_string(self->file, key, exact);
    const bool is_tanh = !strcmp(form, "tanh");
    if (!is_tanh && strcmp(form, exact))
        check_fail(self, "the %s %s is neither %s nor tanh", key, form, exact);
    run_activation(
        self,
        (mha_activation_desc){ .kind = is_tanh ? MHA_ACTIVATION_GELU_TANH : MHA_ACTIVATION_GELU },
        "x", NULL);
}

void ops_gelu(check *self)
{
    run_gelu(self, "approximate", "none");
}

void ops_gelu_forward(check *self)
{
    case_string(self->file, "layout", NULL);
    run_gelu(self, "form", "erf");
}

static mha_activation_desc describe_silu(check *self)
{
    const double alpha = case_float(self->file, "alpha", 1);
    if (alpha == 0)
        check_skip(self, "the interface takes an alpha of 0 as its default");
    return (mha_activation_desc){ .kind = MHA_ACTIVATION_SILU, .alpha = (float)alpha };
}

void ops_swish(check *self)
{
    run_activation(self, describe_silu(self), "x", NULL);
}

void ops_swiglu(check *self)
{
    run_activation(self, describe_silu(self), "a", "b");
}

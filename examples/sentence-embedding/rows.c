/* Layer norm, activations and pooling of rows. Sums are in double: their cost is small. */
#include "rows.h"

#include <math.h>

void rows_normalize(float *rows, size_t count, size_t width, const float *scale, const float *shift,
                    float eps)
{
    for (float *row = rows; row < rows + count * width; row += width) {
        double sum = 0, squares = 0;
        for (size_t i = 0; i < width; i++)
            sum += row[i];
        const double mean = sum / (double)width;
        for (size_t i = 0; i < width; i++)
            squares += (row[i] - mean) * (row[i] - mean);
        const double factor = 1 / sqrt(squares / (double)width + eps);
        for (size_t i = 0; i < width; i++)
            row[i] = (float)((row[i] - mean) * factor) * scale[i] + shift[i];
    }
}

static float activate(float x, config_activation activation)
{
    const float half_root = 0.70710678f;    /* sqrt(1 / 2) */
    const float root_of_2_pi = 0.79788456f; /* sqrt(2 / pi) */
    switch (activation) {
    case CONFIG_GELU:
        return 0.5f * x * (1 + erff(x * half_root));
    case CONFIG_GELU_TANH:
        return 0.5f * x * (1 + tanhf(root_of_2_pi * (x + 0.044715f * x * x * x)));
    case CONFIG_RELU:
        return x < 0 ? 0 : x;
    case CONFIG_SILU:
        break;
    }
    return x / (1 + expf(-x));
}

void rows_activate(float *values, size_t count, config_activation activation)
{
    for (size_t i = 0; i < count; i++)
        values[i] = activate(values[i], activation);
}

void rows_pool(const float *rows, size_t length, size_t width, float *out)
{
    double squares = 0;
    for (size_t i = 0; i < width; i++) {
        double sum = 0;
        for (size_t row = 0; row < length; row++)
            sum += rows[row * width + i];
        out[i] = (float)(sum / (double)length);
        squares += (double)out[i] * out[i];
    }
    for (size_t i = 0; i < width && squares > 0; i++)
        out[i] = (float)(out[i] / sqrt(squares));
}

/* Pooling. Sums are in double: their cost is small. */
#include "rows.h"

#include <math.h>

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

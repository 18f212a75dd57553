/* Activation functions of feed-forward layers, element by element: also for the end of a product.
 *
 * Before it is included these must be defined: ACTIVATE_REAL, the float or vector of floats that it
 * is for, and ACTIVATE_EXP, the exponential of such. Build option ACTIVATION: an mha_activation_kind.
 *
 * Far from 0 a function tends to 0 or to x, and so does what is computed: where 0 times infinity
 * would be a NaN, x or the result is kept from getting there. A NaN stays one. */

#if ACTIVATION == 2
/* The normal distribution's tail, erfc(a / sqrt 2) / 2, for a from 0 to 15, where it has long been 0:
 * exp(-a^2 / 2) times a polynomial in t = 1 / (1 + 0.3 a), which goes through the quotient of the two
 * at Chebyshev's points. Its relative error is below 1e-7; drivers' erfc takes five times as long. */
static ACTIVATE_REAL activate_tail(ACTIVATE_REAL a)
{
    const ACTIVATE_REAL t = 1.0f / (1.0f + 0.3f * a);
    ACTIVATE_REAL p = 0.0378356986f;
    p = p * t - 0.166755896f;
    p = p * t + 0.224171099f;
    p = p * t - 0.0719504833f;
    p = p * t + 0.139794024f;
    p = p * t + 0.095679734f;
    p = p * t + 0.121707898f;
    p = p * t + 0.119511903f;
    p = p * t + 6.0422131e-6f;
    return p * ACTIVATE_EXP(-0.5f * a * a);
}
#endif

static ACTIVATE_REAL activate(ACTIVATE_REAL x, float alpha)
{
#if ACTIVATION == 1
    return select(x, (ACTIVATE_REAL)(0.0f), x < 0.0f);
#elif ACTIVATION == 2
    const ACTIVATE_REAL size = select(fabs(x), (ACTIVATE_REAL)(15.0f), fabs(x) > 15.0f);
    return select(x, (ACTIVATE_REAL)(0.0f), x < 0.0f) - size * activate_tail(size);
#elif ACTIVATION == 3
    /* x / 2 (1 + tanh(u)) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3): no exponential
     * is divided by another. */
    x = select(x, (ACTIVATE_REAL)(-15.0f), x < -15.0f);
    return x / (1.0f + ACTIVATE_EXP(-1.59576912f * (x + 0.044715f * x * x * x)));
#elif ACTIVATION == 4
    /* x sigmoid(alpha x) */
    const ACTIVATE_REAL z = alpha * x;
    return select(x / (1.0f + ACTIVATE_EXP(-z)), (ACTIVATE_REAL)(0.0f), z < -100.0f);
#else
    return x;
#endif
}

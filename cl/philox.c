/* Random123's Philox as the kernels take it: the C compiler's preprocessor evaluates this file at build
 * time, and cl/embed.py pastes the outcome for #include "philox.h". Random123 has a licence of its own,
 * see LICENSE.Random123. */

/* Without `static` an inline function is lost where a driver does not inline it. */
#define R123_STATIC_INLINE static inline

/* Only Philox of 32-bit words. Its high words by 64-bit products: by mul_hi it takes three times as
 * long on PoCL, whose mul_hi is made of half words, and nearly twice on Intel's CPU runtime. */
#define R123_USE_PHILOX_64BIT 0

/* Asks for the host's SSE, whatever the device. */
#define _Random123_sse_dot_h__

#include <Random123/philox.h>

/* Eight floats at a time, and sums in the order in which numpy adds them.

   Trees ask whether a number lies below a threshold, so a sum in another order may end at another leaf. What trees read
   is therefore added in numpy's order, and nothing is contracted (`-ffp-contract=off`): the same numbers come out on
   every machine. Products of BLAS alone have no such order; callers look whether a threshold is near them. */
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef float eight_apart __attribute__((vector_size(32)));
typedef int32_t eight_whole __attribute__((vector_size(32), may_alias));
typedef int16_t eight_short __attribute__((vector_size(16)));
typedef int8_t eight_bytes __attribute__((vector_size(8), aligned(1), may_alias));

static inline eight load8(const float *from)
{
    return *(const eight *)from;
}

static inline void store8(float *to, eight x)
{
    *(eight *)to = x;
}

static inline eight all8(float x)
{
    return (eight){x, x, x, x, x, x, x, x};
}

static inline eight bytes8(const int8_t *from)
{
#ifdef IS_WIDE
    return (eight)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from)));
#else
    eight_short half = __builtin_convertvector(*(const eight_bytes *)from, eight_short);
    return (eight)__builtin_convertvector(__builtin_convertvector(half, eight_whole), eight_apart);
#endif
}

/* x * y + z: rounded once where that is one step, for sums whose last bits no tree asks */
static inline eight fused8(eight x, eight y, eight z)
{
#ifdef IS_WIDE
    return (eight)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)z);
#else
    return x * y + z;
#endif
}

/* exp for -80 < x < 80, by Cephes' polynomial: right to the last place or the one before it */
static inline eight exp8(eight x)
{
    const eight round = all8(12582912.0f); /* 1.5 * 2**23: what is added to it loses its fraction */
    eight whole = (x * all8(1.44269504088896341f) + round) - round;
    x = (x - whole * all8(0.693359375f)) - whole * all8(-2.12194440e-4f);
    eight y = all8(1.9875691500e-4f);
    y = y * x + all8(1.3981999507e-3f);
    y = y * x + all8(8.3334519073e-3f);
    y = y * x + all8(4.1665795894e-2f);
    y = y * x + all8(1.6666665459e-1f);
    y = y * x + all8(5.0000001201e-1f);
    y = y * (x * x) + x + all8(1.0f);
    eight_whole power = __builtin_convertvector((eight_apart)whole, eight_whole) + 127;
    return y * (eight)(power << 23);
}

/* tanh by exp: exact to some 1e-7 in absolute terms, which is what sums of many need */
static inline eight tanh8(eight x)
{
    const eight most = all8(20.0f);
    eight_whole is_above = (eight_whole)(x > most), is_below = (eight_whole)(x < -most);
    eight_whole inside = ~(is_above | is_below);
    x = (eight)(((eight_whole)x & inside) | ((eight_whole)most & is_above) | ((eight_whole)-most & is_below));
    return all8(1.0f) - all8(2.0f) / (all8(1.0f) + exp8(x + x));
}

static inline float sum8(eight x)
{
    return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

/* numpy's `add.reduce` of a row */
static float added(const float *x, size_t count)
{
    if (count < 8) {
        float sum = 0;
        for (size_t at = 0; at < count; at++)
            sum += x[at];
        return sum;
    }
    if (count <= 128) {
        eight sums = load8(x);
        size_t at = 8;
        for (; at + 8 <= count; at += 8)
            sums += load8(x + at);
        float sum = sum8(sums);
        for (; at < count; at++)
            sum += x[at];
        return sum;
    }
    size_t half = count / 2;
    half -= half % 8;
    return added(x, half) + added(x + half, count - half);
}

static float dot(const float *x, const float *y, size_t count)
{
    eight sums = all8(0), others = sums;
    size_t at = 0;
    for (; at + 16 <= count; at += 16) {
        sums += load8(x + at) * load8(y + at);
        others += load8(x + at + 8) * load8(y + at + 8);
    }
    float sum = sum8(sums + others);
    for (; at < count; at++)
        sum += x[at] * y[at];
    return sum;
}

/* a float16 of numpy's */
static inline float float_of_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff, bits;
    float found;
    if (rest >= 0x7c00)
        bits = (rest << 13) | 0x7f800000u; /* infinite, or no number */
    else if (rest >= 0x0400)
        bits = (rest << 13) + 0x38000000u;
    else {
        found = (float)rest * 5.9604644775390625e-8f; /* 2**-24 */
        return sign ? -found : found;
    }
    bits |= sign;
    memcpy(&found, &bits, sizeof found);
    return found;
}

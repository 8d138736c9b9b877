/* The arithmetic for x86-64 with AVX2 and FMA, which is asked for when the kernel loads. */
#include "arithmetic.h"

#if defined(__x86_64__) && !defined(PLAIN_ARITHMETIC) /* which tests of the other one set */
#include <immintrin.h>
#include <math.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define IS_WIDE
#include "vectors.h"
#include "arithmetic_body.h"
#include "layers_body.h"
#include "relevance_body.h"
static const Arithmetic wide_arithmetic = {bags, topics, difficulty, tower, distances, trees, gelu, quantized_linear,
                                           relevance, rarest_pieces, compared};
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

/* Four products in one step, for processors with AVX-512 and VNNI; the sums are the same. */
__attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni"))) static void
quantized_tile_vnni(const QuantizedLayer *of, size_t tile, const uint8_t *const *states, float (*found)[LANES])
{
    const int8_t *weights = of->tiles + tile * of->inputs * LANES;
    size_t groups = of->inputs / of->group;
    __m512 sums[MOST_TOGETHER];
    for (size_t row = 0; row < MOST_TOGETHER; row++)
        sums[row] = _mm512_setzero_ps();
    for (size_t group = 0; group < groups; group++) {
        __m512i whole[MOST_TOGETHER];
        for (size_t row = 0; row < MOST_TOGETHER; row++)
            whole[row] = _mm512_setzero_si512();
        for (size_t at = group * of->group; at < (group + 1) * of->group; at += 4) {
            __m512i weight = _mm512_loadu_si512(weights + at * LANES);
            for (size_t row = 0; row < MOST_TOGETHER; row++) {
                int32_t four;
                memcpy(&four, states[row] + at, 4);
                whole[row] = _mm512_dpbusd_epi32(whole[row], _mm512_set1_epi32(four), weight);
            }
        }
        __m512 scale = _mm512_loadu_ps(of->scales + (tile * groups + group) * LANES);
        __m512i offset = _mm512_loadu_si512(of->offsets + (tile * groups + group) * LANES);
        for (size_t row = 0; row < MOST_TOGETHER; row++) {
            __m512 part = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(whole[row], offset)), scale);
            sums[row] = _mm512_add_ps(sums[row], part);
        }
    }
    for (size_t row = 0; row < MOST_TOGETHER; row++)
        _mm512_storeu_ps(found[row], sums[row]);
}

static void quantized_linear_vnni(const QuantizedLayer *of, const float *x, size_t rows, uint8_t *work, float *steps,
                                  float *out)
{
    quantized_rows(of, x, rows, work, steps, out, quantized_tile_vnni, MOST_TOGETHER);
}

const Arithmetic *chosen_arithmetic(void)
{
    static Arithmetic widest;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return &narrow_arithmetic;
    if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512vnni"))
        return &wide_arithmetic;
    widest = wide_arithmetic;
    widest.quantized_linear = quantized_linear_vnni;
    return &widest;
}
#else
const Arithmetic *chosen_arithmetic(void)
{
    return &narrow_arithmetic;
}
#endif

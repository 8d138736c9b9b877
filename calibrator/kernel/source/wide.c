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
static const Arithmetic wide_arithmetic = {bags, topics, difficulty, tower, distances, trees, gelu, packed_linear,
                                           relevance, rarest_pieces, compared};
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const Arithmetic *chosen_arithmetic(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &wide_arithmetic : &narrow_arithmetic;
}
#else
const Arithmetic *chosen_arithmetic(void)
{
    return &narrow_arithmetic;
}
#endif

/* Included by `wide.c` and `narrow.c`: the linear layers of small encoders, whose weights are whole numbers of a few bits
   with a scale for each group. */

/* States of a row are rounded to 127 steps of their largest. Sums of whole numbers are exact,
   and floats are added in one order, so every machine gives the same numbers. */

/* Rounds a row to unsigned bytes around 128; returns the size of a step. */
static float quantized_row(const float *x, size_t inputs, uint8_t *found)
{
    float largest = 0;
    for (size_t at = 0; at < inputs; at++) {
        float size = fabsf(x[at]);
        largest = size > largest ? size : largest;
    }
    float steps = largest > 0 ? 127.0f / largest : 0.0f;
    const float round = 12582912.0f; /* 1.5 * 2**23: what is added to it loses its fraction */
    for (size_t at = 0; at < inputs; at++)
        found[at] = (uint8_t)((int32_t)((x[at] * steps + round) - round) + 128);
    return largest / 127.0f;
}

#ifdef IS_WIDE
enum { TOGETHER = 4, SHORT_SUMS = 8 }; /* rows at a time; products that 16 bits hold: 8 * 2 * 255 * 7 < 2**15 */

static void quantized_tile(const QuantizedLayer *of, size_t tile, const uint8_t *const *states, float (*found)[LANES])
{
    const __m256i ones = _mm256_set1_epi16(1);
    const int8_t *weights = of->tiles + tile * of->inputs * LANES;
    size_t groups = of->inputs / of->group;
    eight sums[TOGETHER][2];
    for (size_t row = 0; row < TOGETHER; row++)
        sums[row][0] = sums[row][1] = all8(0);
    for (size_t group = 0; group < groups; group++) {
        __m256i whole[TOGETHER][2];
        for (size_t row = 0; row < TOGETHER; row++)
            whole[row][0] = whole[row][1] = _mm256_setzero_si256();
        size_t end = (group + 1) * of->group;
        for (size_t start = group * of->group; start < end; start += 4 * SHORT_SUMS) {
            __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a, e = a, f = a, g = a, h = a;
            size_t stop = start + 4 * SHORT_SUMS < end ? start + 4 * SHORT_SUMS : end;
            for (size_t at = start; at < stop; at += 4) {
                __m256i first = _mm256_loadu_si256((const __m256i *)(weights + at * LANES));
                __m256i second = _mm256_loadu_si256((const __m256i *)(weights + at * LANES + 32));
                int32_t four[TOGETHER];
                for (size_t row = 0; row < TOGETHER; row++)
                    memcpy(four + row, states[row] + at, 4);
                __m256i one = _mm256_set1_epi32(four[0]), two = _mm256_set1_epi32(four[1]);
                __m256i three = _mm256_set1_epi32(four[2]), last = _mm256_set1_epi32(four[3]);
                a = _mm256_add_epi16(a, _mm256_maddubs_epi16(one, first));
                e = _mm256_add_epi16(e, _mm256_maddubs_epi16(one, second));
                b = _mm256_add_epi16(b, _mm256_maddubs_epi16(two, first));
                f = _mm256_add_epi16(f, _mm256_maddubs_epi16(two, second));
                c = _mm256_add_epi16(c, _mm256_maddubs_epi16(three, first));
                g = _mm256_add_epi16(g, _mm256_maddubs_epi16(three, second));
                d = _mm256_add_epi16(d, _mm256_maddubs_epi16(last, first));
                h = _mm256_add_epi16(h, _mm256_maddubs_epi16(last, second));
            }
            const __m256i found16[TOGETHER][2] = {{a, e}, {b, f}, {c, g}, {d, h}};
            for (size_t row = 0; row < TOGETHER; row++)
                for (size_t half = 0; half < 2; half++)
                    whole[row][half] = _mm256_add_epi32(whole[row][half], _mm256_madd_epi16(found16[row][half], ones));
        }
        const float *scales = of->scales + (tile * groups + group) * LANES;
        const int32_t *offsets = of->offsets + (tile * groups + group) * LANES;
        for (size_t half = 0; half < 2; half++) {
            eight scale = load8(scales + 8 * half);
            __m256i offset = _mm256_loadu_si256((const __m256i *)(offsets + 8 * half));
            for (size_t row = 0; row < TOGETHER; row++)
                sums[row][half] += (eight)_mm256_cvtepi32_ps(_mm256_sub_epi32(whole[row][half], offset)) * scale;
        }
    }
    for (size_t row = 0; row < TOGETHER; row++) {
        store8(found[row], sums[row][0]);
        store8(found[row] + 8, sums[row][1]);
    }
}
#else
enum { TOGETHER = 1 };

static void quantized_tile(const QuantizedLayer *of, size_t tile, const uint8_t *const *states, float (*found)[LANES])
{
    size_t groups = of->inputs / of->group;
    for (size_t lane = 0; lane < LANES; lane++) {
        float sum = 0;
        for (size_t group = 0; group < groups; group++) {
            int32_t whole = -of->offsets[(tile * groups + group) * LANES + lane];
            for (size_t at = group * of->group; at < (group + 1) * of->group; at++) {
                size_t place = (tile * of->inputs + at - at % 4) * LANES + 4 * lane + at % 4;
                whole += (int32_t)states[0][at] * of->tiles[place];
            }
            sum += (float)whole * of->scales[(tile * groups + group) * LANES + lane];
        }
        found[0][lane] = sum;
    }
}
#endif

typedef void (*QuantizedTile)(const QuantizedLayer *, size_t tile, const uint8_t *const *states, float (*found)[LANES]);

enum { MOST_TOGETHER = 8 };

/* out (rows, outputs) = x (rows, inputs) @ weights + bias, by `tile_of` for so many rows at a time; `work` has room for
   rows * inputs bytes, `steps` for rows. */
static void quantized_rows(const QuantizedLayer *of, const float *x, size_t rows, uint8_t *work, float *steps, float *out,
                           QuantizedTile tile_of, size_t together)
{
    for (size_t row = 0; row < rows; row++)
        steps[row] = quantized_row(x + row * of->inputs, of->inputs, work + row * of->inputs);
    for (size_t tile = 0; tile * LANES < of->outputs; tile++)
        for (size_t row = 0; row < rows; row += together) {
            const uint8_t *states[MOST_TOGETHER];
            float found[MOST_TOGETHER][LANES];
            for (size_t at = 0; at < together; at++) /* what is beyond the last row is computed again */
                states[at] = work + (row + at < rows ? row + at : rows - 1) * of->inputs;
            tile_of(of, tile, states, found);
            for (size_t at = 0; at < together && row + at < rows; at++) {
                float *to = out + (row + at) * of->outputs + tile * LANES;
                for (size_t lane = 0; lane < LANES; lane++)
                    to[lane] = found[at][lane] * steps[row + at] + of->bias[tile * LANES + lane];
            }
        }
}

static void quantized_linear(const QuantizedLayer *of, const float *x, size_t rows, uint8_t *work, float *steps, float *out)
{
    quantized_rows(of, x, rows, work, steps, out, quantized_tile, TOGETHER);
}

/* Included by `wide.c` and `narrow.c`: the linear layers of the small encoder, whose weights are whole numbers of a few
   bits with a scale for each group. */

/* The weights of one tile of outputs, (inputs, LANES), into `found`. */
static void unpack_tile(const PackedLayer *of, size_t tile, float *found)
{
    const int8_t *from = of->tiles + tile * of->inputs * LANES;
    const float *scales = of->scales + tile * (of->inputs / of->group) * LANES;
    for (size_t start = 0; start < of->inputs; start += of->group, scales += LANES) {
        eight first = load8(scales), second = load8(scales + 8);
        for (size_t at = start; at < start + of->group; at++) {
            store8(found + at * LANES, bytes8(from + at * LANES) * first);
            store8(found + at * LANES + 8, bytes8(from + at * LANES + 8) * second);
        }
    }
}

/* out (rows, outputs) = x (rows, inputs) @ weights + bias; `work` has room for inputs * LANES floats. Each tile of
   weights is unpacked once for all rows, and read for four of them at a time. */
static void packed_linear(const PackedLayer *of, const float *x, size_t rows, float *work, float *out)
{
    for (size_t tile = 0; tile * LANES < of->outputs; tile++) {
        unpack_tile(of, tile, work);
        eight bias = load8(of->bias + tile * LANES), more_bias = load8(of->bias + tile * LANES + 8);
        for (size_t row = 0; row < rows; row += 4) {
            const float *own[4];
            for (size_t at = 0; at < 4; at++) /* what is beyond the last row is computed again */
                own[at] = x + (row + at < rows ? row + at : rows - 1) * of->inputs;
            eight a = bias, b = bias, c = bias, d = bias, e = more_bias, f = more_bias, g = more_bias, h = more_bias;
            for (size_t at = 0; at < of->inputs; at++) {
                eight first = load8(work + at * LANES), second = load8(work + at * LANES + 8);
                eight one = all8(own[0][at]), two = all8(own[1][at]), three = all8(own[2][at]), four = all8(own[3][at]);
                a = fused8(one, first, a), e = fused8(one, second, e);
                b = fused8(two, first, b), f = fused8(two, second, f);
                c = fused8(three, first, c), g = fused8(three, second, g);
                d = fused8(four, first, d), h = fused8(four, second, h);
            }
            const eight found[4][2] = {{a, e}, {b, f}, {c, g}, {d, h}};
            for (size_t at = 0; at < 4 && row + at < rows; at++) {
                float *to = out + (row + at) * of->outputs + tile * LANES;
                store8(to, found[at][0]);
                store8(to + 8, found[at][1]);
            }
        }
    }
}

/* Included by `wide.c` and `narrow.c`; see `arithmetic.h`. */

/* Adds columns of some rows, a scale each: 32 at a time, whose sums stay in registers. */
static void add_rows(const int8_t *const *rows, const float *scales, size_t count, size_t width, float *sums)
{
    size_t at = 0;
    for (; at + 32 <= width; at += 32) {
        eight a = load8(sums + at), b = load8(sums + at + 8), c = load8(sums + at + 16), d = load8(sums + at + 24);
        for (size_t number = 0; number < count; number++) {
            const int8_t *own = rows[number] + at;
            eight scale = all8(scales[number]);
            a += scale * bytes8(own);
            b += scale * bytes8(own + 8);
            c += scale * bytes8(own + 16);
            d += scale * bytes8(own + 24);
        }
        store8(sums + at, a);
        store8(sums + at + 8, b);
        store8(sums + at + 16, c);
        store8(sums + at + 24, d);
    }
    for (; at < width; at++)
        for (size_t number = 0; number < count; number++)
            sums[at] += scales[number] * (float)rows[number][at];
}

static void bags(const BagTables *of, const int32_t *ids, size_t count, float *found)
{
    enum { TOGETHER = 16 };
    const int8_t *rows[TOGETHER];
    float scales[TOGETHER];
    size_t row = of->members * of->width;
    for (size_t at = 0; at < row; at++)
        found[at] = 0;
    for (size_t start = 0; start < count; start += TOGETHER) {
        size_t some = count - start < TOGETHER ? count - start : TOGETHER;
        size_t next = start + TOGETHER, ahead = next + TOGETHER < count ? next + TOGETHER : count;
        for (size_t member = 0; member < of->members; member++) {
            for (size_t number = next; number < ahead; number++) {
                const char *own = (const char *)(of->table + (size_t)ids[number] * row);
                for (size_t at = 64 * member; at < row; at += 64 * of->members)
                    __builtin_prefetch(own + at);
                if (member == 0) {
                    __builtin_prefetch(own + row - 1);
                    __builtin_prefetch(of->scales + (size_t)ids[number] * of->members);
                }
            }
            for (size_t number = 0; number < some; number++) {
                size_t id = (size_t)ids[start + number];
                rows[number] = of->table + id * row + member * of->width;
                scales[number] = float_of_half(of->scales[id * of->members + member]);
            }
            add_rows(rows, scales, some, of->width, found + member * of->width);
        }
    }
    float root = (float)sqrt((double)(count ? count : 1));
    for (size_t at = 0; at < row; at++)
        found[at] /= root;
}

/* `work` has room for 2 * count floats, and as many places */
static void topics(const TopicTable *of, const int32_t *ids, size_t count, float *work, float *found)
{
    int32_t *places = (int32_t *)(work + count);
    size_t known = 0;
    for (size_t number = 0; number < count; number++) {
        size_t bucket = (size_t)ids[number] < of->size ? (size_t)ids[number] : of->size - 1;
        if (of->places[bucket] < of->rows) {
            places[known] = of->places[bucket];
            __builtin_prefetch(of->table + (size_t)places[known] * of->width);
            work[known] = of->rarity[places[known]];
            work[known] *= work[known];
            known++;
        }
    }
    double length = (double)sqrtf(added(work, known));
    float divisor = (float)(length > 1e-6 ? length : 1e-6);
    for (size_t at = 0; at < of->width; at++)
        found[at] = 0;
    for (size_t number = 0; number < known; number++) {
        size_t place = (size_t)places[number];
        float weight = of->rarity[place] * of->scale[place] / divisor;
        const int8_t *row = of->table + place * of->width;
        size_t at = 0;
        for (; at + 8 <= of->width; at += 8)
            store8(found + at, load8(found + at) + all8(weight) * bytes8(row + at));
        for (; at < of->width; at++)
            found[at] += weight * (float)row[at];
    }
}

/* What a question means, of length 1 or 0. */
static void meaning(const DifficultyTables *of, const int32_t *ids, size_t count, float *work, float *found)
{
    for (size_t at = 0; at < of->width; at++)
        found[at] = 0;
    for (size_t number = 0; number < count; number++) {
        float scale = of->scale[ids[number]];
        const int8_t *row = of->table + (size_t)ids[number] * of->width;
        for (size_t at = 0; at < of->width; at++)
            found[at] += scale * (float)row[at];
    }
    for (size_t at = 0; at < of->width; at++)
        work[at] = found[at] * found[at];
    float length = sqrtf(added(work, of->width));
    length = length > 1e-6f ? length : 1e-6f;
    for (size_t at = 0; at < of->width; at++)
        found[at] /= length;
}

/* Eight numbers divided by the lengths of theirs, rounded as a division rounds. */
static inline eight divided8(eight x, eight length, eight inverse)
{
#ifdef IS_WIDE
    eight found = x * inverse; /* then Markstein's step, for a division takes five times as long */
    __m256 rest = _mm256_fnmadd_ps((__m256)found, (__m256)length, (__m256)x);
    return (eight)_mm256_fmadd_ps(rest, (__m256)inverse, (__m256)found);
#else
    (void)inverse;
    return x / length;
#endif
}

/* The sum of products as numpy's `einsum` has it: a buffer at a time, in it four lanes, of sixteen numbers the last four
   first. */
static float products(const float *x, const float *y, size_t count)
{
    enum { BUFFER = 8192 };
    float sum = 0;
    for (size_t start = 0; start < count; start += BUFFER) {
        size_t end = count - start < BUFFER ? count : start + BUFFER, at = start;
        float lanes[4] = {0, 0, 0, 0};
        for (; at + 16 <= end; at += 16)
            for (int part = 12; part >= 0; part -= 4)
                for (int lane = 0; lane < 4; lane++)
                    lanes[lane] = x[at + part + lane] * y[at + part + lane] + lanes[lane];
        for (; at < end; at += 4)
            for (size_t lane = 0; lane < 4 && at + lane < end; lane++)
                lanes[lane] = x[at + lane] * y[at + lane] + lanes[lane];
        sum += (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    }
    return sum;
}

/* The share of right replies around a question, its sums in numpy's order. `work` has room for the questions of whole
   tiles, and for the bytes of a tile. */
static float exact_share(const DifficultyTables *of, const float *vector, float *work)
{
    size_t tiles = (of->questions + TILE - 1) / TILE, pairs = (of->width + 1) / 2;
    float *near = work;
    int8_t *columns = (int8_t *)(work + tiles * TILE);
    for (size_t tile = 0; tile < tiles; tile++) {
        const int8_t *packed = of->tiles + tile * pairs * 2 * TILE;
        for (size_t pair = 0; pair < pairs; pair++)
            for (size_t at = 0; at < TILE; at++) {
                columns[2 * pair * TILE + at] = packed[(pair * TILE + at) * 2];
                columns[(2 * pair + 1) * TILE + at] = packed[(pair * TILE + at) * 2 + 1];
            }
        for (size_t part = 0; part < TILE; part += 8) {
            eight length = load8(of->lengths + tile * TILE + part), inverse = all8(1.0f) / length, sum = all8(0);
            for (size_t at = 0; at < of->width; at++)
                sum += all8(vector[at]) * divided8(bytes8(columns + at * TILE + part), length, inverse);
            store8(near + tile * TILE + part, exp8((sum - all8(1.0f)) / all8(of->nearness)));
        }
    }
    for (size_t at = 0; at < of->questions; at++)
        near[at] *= of->weight[at];
    float right = products(near, of->share, of->questions);
    return (right + of->prior * of->base) / (added(near, of->questions) + of->prior);
}

/* A question's meaning in whole numbers, two side by side in each; gives what 1 of a product with them stands for. */
static float whole_pairs(const float *vector, size_t width, int32_t *found)
{
    float largest = 1e-6f, most = 2147483648.0f / (128.0f * (float)(width + 1)); /* so that sums of products fit */
    for (size_t at = 0; at < width; at++)
        largest = fabsf(vector[at]) > largest ? fabsf(vector[at]) : largest;
    float scale = (most < 32767.0f ? most : 32767.0f) / largest;
    for (size_t at = 0; at < width; at += 2) {
        int32_t first = (int32_t)lrintf(vector[at] * scale);
        int32_t second = at + 1 < width ? (int32_t)lrintf(vector[at + 1] * scale) : 0;
        found[at / 2] = (int32_t)((uint32_t)second << 16 | ((uint32_t)first & 0xffff));
    }
    return 1 / scale;
}

/* Pairs of bytes side by side as pairs of 16 bits, each in a number. */
static void widened(const int8_t *from, size_t count, int32_t *to)
{
    for (size_t at = 0; at < count; at += 8) {
#ifdef IS_WIDE
        _mm256_storeu_si256((__m256i *)(to + at), _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(from + 2 * at))));
#else
        for (size_t lane = at; lane < at + 8; lane++)
            to[lane] = (int32_t)((uint32_t)from[2 * lane + 1] << 16 | ((uint32_t)from[2 * lane] & 0xffff));
#endif
    }
}

/* The sums of both products of pairs. */
static inline eight_whole products_of_pairs(const int32_t *some, int32_t other)
{
#ifdef IS_WIDE
    return (eight_whole)_mm256_madd_epi16(_mm256_loadu_si256((const __m256i *)some), _mm256_set1_epi32(other));
#else
    eight_whole own;
    memcpy(&own, some, sizeof own);
    return ((own << 16) >> 16) * (int32_t)(int16_t)other + (own >> 16) * (other >> 16);
#endif
}

/* 2**x for -126 < x < 126, right to 3e-6 of it */
static inline eight power8(eight x)
{
    const eight round = all8(12582912.0f); /* as in `exp8` */
    eight whole = x + round, rest = x - (whole - round);
    eight y = fused8(all8(9.5701013e-3f), rest, all8(5.5917863e-2f));
    y = fused8(y, rest, all8(2.4024744e-1f));
    y = fused8(y, rest, all8(6.9312179e-1f));
    y = fused8(y, rest, all8(9.9999928e-1f));
    return (eight)((eight_whole)y + ((eight_whole)whole << 23));
}

/* What the questions of a tile add to the sums of one question or two. */
static inline void add_tile(const DifficultyTables *of, size_t tile, const int32_t *columns, const int32_t *whole,
                            const float *worth, size_t rows, float *sums)
{
    enum { PARTS_OF_TILE = TILE / 8 };
    size_t pairs = (of->width + 1) / 2, size = (of->questions + TILE - 1) / TILE * TILE;
    eight_whole found[2][PARTS_OF_TILE] = {{{0}}};
    for (size_t pair = 0; pair < pairs; pair++)
        for (int part = 0; part < PARTS_OF_TILE; part++)
            for (size_t row = 0; row < rows; row++)
                found[row][part] += products_of_pairs(columns + pair * TILE + 8 * part, whole[row * pairs + pair]);
    const float by = 1.44269504f / of->nearness;
    for (size_t row = 0; row < rows; row++) {
        eight all = load8(sums + 16 * row), right = load8(sums + 16 * row + 8);
        for (int part = 0; part < PARTS_OF_TILE; part++) {
            const float *factors = of->factors + tile * TILE + 8 * part;
            eight cosine = (eight)__builtin_convertvector(found[row][part], eight_apart) * load8(factors);
            eight near = power8(fused8(cosine, all8(worth[row] * by), all8(-by)));
            all = fused8(near, load8(factors + size), all);
            right = fused8(near, load8(factors + 2 * size), right);
        }
        store8(sums + 16 * row, all);
        store8(sums + 16 * row + 8, right);
    }
}

/* The shares of right replies around several questions, whose meanings are rounded to 16 bits; exact where one of `beside`
   is as near as such a share may be off, or for all of them where it is NULL. `work` has room for each row's meaning,
   twice, and 17 floats, for a tile of `width` + 1, and for what `exact_share` needs. */
static void difficulty(const DifficultyTables *of, const int32_t *const *ids, const size_t *counts, size_t rows,
                       const float *beside, size_t beside_count, float *work, float *found)
{
    const float off = 4; /* times what a number is rounded to a share may be off: of 6,000 questions, 1.6 times at most */
    size_t width = of->width, pairs = (width + 1) / 2, tiles = (of->questions + TILE - 1) / TILE;
    float *vectors = work, *sums = vectors + rows * width, *worth = sums + rows * 16;
    int32_t *whole = (int32_t *)(worth + rows), *columns = whole + rows * pairs;
    float *rest = (float *)(columns + pairs * TILE);
    memset(sums, 0, rows * 16 * sizeof *sums);
    for (size_t row = 0; row < rows; row++) {
        meaning(of, ids[row], counts[row], rest, vectors + row * width);
        worth[row] = whole_pairs(vectors + row * width, width, whole + row * pairs);
    }
    for (size_t tile = 0; tile < tiles && beside != NULL; tile++) {
        widened(of->tiles + tile * pairs * 2 * TILE, pairs * TILE, columns);
        size_t row = 0;
        for (; row + 2 <= rows; row += 2)
            add_tile(of, tile, columns, whole + row * pairs, worth + row, 2, sums + row * 16);
        if (row < rows)
            add_tile(of, tile, columns, whole + row * pairs, worth + row, 1, sums + row * 16);
    }
    for (size_t row = 0; row < rows; row++) {
        float all = sum8(load8(sums + 16 * row)), right = sum8(load8(sums + 16 * row + 8));
        found[row] = (right + of->prior * of->base) / (all + of->prior);
        int is_exact = beside == NULL;
        for (size_t at = 0; at < beside_count; at++)
            is_exact |= fabsf(beside[at] - found[row]) < off * worth[row];
        if (is_exact)
            found[row] = exact_share(of, vectors + row * width, rest);
    }
}

static void gelu(float *x, size_t count)
{
    size_t at = 0;
    for (; at + 8 <= count; at += 8) {
        eight own = load8(x + at);
        eight inner = all8(0.7978845608f) * (own + all8(0.044715f) * (own * own * own));
        store8(x + at, own * (all8(1.0f) + tanh8(inner)) * all8(0.5f));
    }
    for (; at < count; at++) {
        float own = x[at];
        x[at] = own * (1 + tanhf(0.7978845608f * (own + 0.044715f * (own * own * own)))) * 0.5f;
    }
}

/* 32 outputs of one row, or of two rows that read the weights together. */
static inline void linear_of_rows(const float *x, size_t rows, size_t inputs, const float *weight, const float *bias,
                                  size_t outputs, float *out)
{
    eight sums[2][4] = {{all8(0), all8(0), all8(0), all8(0)}, {all8(0), all8(0), all8(0), all8(0)}};
    for (size_t at = 0; at < inputs; at++, weight += outputs)
        for (size_t row = 0; row < rows; row++) {
            eight factor = all8(x[row * inputs + at]);
            for (int part = 0; part < 4; part++)
                sums[row][part] += factor * load8(weight + 8 * part);
        }
    for (size_t row = 0; row < rows; row++)
        for (int part = 0; part < 4; part++)
            store8(out + row * outputs + 8 * part, sums[row][part] + load8(bias + 8 * part));
}

/* out (rows, outputs) = x (rows, inputs) @ weight (inputs, outputs) + bias; the weights are read once for all rows */
static void linear(const float *x, size_t rows, size_t inputs, const float *weight, const float *bias, size_t outputs,
                   float *out)
{
    size_t start = 0;
    for (; start + 32 <= outputs; start += 32) {
        size_t row = 0;
        for (; row + 2 <= rows; row += 2)
            linear_of_rows(x + row * inputs, 2, inputs, weight + start, bias + start, outputs,
                           out + row * outputs + start);
        if (row < rows)
            linear_of_rows(x + row * inputs, 1, inputs, weight + start, bias + start, outputs,
                           out + row * outputs + start);
    }
    for (; start + 8 <= outputs; start += 8)
        for (size_t row = 0; row < rows; row++) {
            eight sums = all8(0);
            for (size_t at = 0; at < inputs; at++)
                sums += all8(x[row * inputs + at]) * load8(weight + at * outputs + start);
            store8(out + row * outputs + start, sums + load8(bias + start));
        }
    for (size_t row = 0; row < rows; row++)
        for (size_t to = start; to < outputs; to++) {
            float sum = 0;
            for (size_t at = 0; at < inputs; at++)
                sum += x[row * inputs + at] * weight[at * outputs + to];
            out[row * outputs + to] = sum + bias[to];
        }
}

static void normed(float *x, size_t count, const float *weight, const float *bias, float epsilon)
{
    float mean = added(x, count) / (float)count, squares = 0;
    for (size_t at = 0; at < count; at++) {
        x[at] -= mean;
        squares += x[at] * x[at];
    }
    float root = sqrtf(squares / (float)count + epsilon);
    for (size_t at = 0; at < count; at++)
        x[at] = x[at] / root * weight[at] + bias[at];
}

/* What the first layer of one member reads of a row; gives what the linear part says of it. */
static float tower_inputs(const TowerWeights *of, size_t member, const float *bags, const float *traits,
                          const float *name, float *found)
{
    size_t width = of->width, words = of->words;
    float plain = name[0], lines = 0;
    for (size_t part = 0; part < of->parts; part++) {
        const float *own = bags + (part * of->members + member) * (1 + width);
        plain += own[0];
        memcpy(found + part * width, own + 1, width * sizeof(float));
    }
    normed(found, words, of->norm_weight + member * words, of->norm_bias + member * words, of->epsilon);
    float *to = found + words;
    for (size_t at = 0; at < width; at++) {
        to[at] = found[at] * found[width + at];
        to[width + at] = found[at] * found[2 * width + at];
    }
    to += 2 * width;
    memcpy(to, name + 1, of->name * sizeof(float));
    to += of->name;
    const float *center = of->center + member * of->traits, *spread = of->spread + member * of->traits;
    for (size_t at = 0; at < of->traits; at++) {
        float own = (traits[at] - center[at]) / spread[at];
        own = own < -of->limit ? -of->limit : own > of->limit ? of->limit : own;
        to[at] = own;
        lines += own * of->linear[member * of->traits + at];
    }
    return plain + lines;
}

/* The logit of one member, of its linear part, its last layer, and what it says of the name and the question. */
static float tower_logit(const TowerWeights *of, size_t member, float plain, const float *given, const float *deep,
                         const float *name, float *asked)
{
    linear(given, 1, of->width, of->asked + member * of->width * of->name, of->asked_bias + member * of->name, of->name,
           asked);
    float sum = of->last_bias[member], said = 0;
    for (size_t at = 0; at < of->deep; at++)
        sum += deep[at] * of->last[member * of->deep + at];
    for (size_t at = 0; at < of->name; at++)
        said += name[at] * asked[at];
    return plain + sum + said;
}

/* Logits (ways, members, rows) of rows under the names (ways, rows) of each way; `hidden` is the first member's, of the
   first way. The first layer of another way is that of the first one and what its names change in it. `work` has room
   for rows * (inputs + 2 * wide + deep + 1) + 2 * name floats. */
static void tower(const TowerWeights *of, const float *bags, const float *traits, const int64_t *names, size_t ways,
                  size_t rows, float *work, float *logits, float *hidden)
{
    size_t inputs = of->words + 2 * of->width + of->name + of->traits, each = 1 + of->name;
    float *given = work, *first = given + rows * inputs, *wide = first + rows * of->wide, *deep = wide + rows * of->wide;
    float *plain = deep + rows * of->deep, *asked = plain + rows, *apart = asked + of->name;
    for (size_t member = 0; member < of->members; member++) {
        const float *known = of->names + member * of->known * each;
        const float *weight = of->first + member * inputs * of->wide;
        const float *of_names = weight + (of->words + 2 * of->width) * of->wide;
        for (size_t row = 0; row < rows; row++)
            plain[row] = tower_inputs(of, member, bags + row * of->parts * of->members * (1 + of->width),
                                      traits + row * of->traits, known + (size_t)names[row] * each,
                                      given + row * inputs);
        linear(given, rows, inputs, weight, of->first_bias + member * of->wide, of->wide, first);
        for (size_t way = 0; way < ways; way++) {
            memcpy(wide, first, rows * of->wide * sizeof(float));
            for (size_t row = 0; way > 0 && row < rows; row++) {
                const float *own = known + (size_t)names[row] * each;
                const float *other = known + (size_t)names[way * rows + row] * each;
                for (size_t at = 0; at < of->name; at++)
                    apart[at] = other[1 + at] - own[1 + at];
                linear(apart, 1, of->name, of_names, first + row * of->wide, of->wide, wide + row * of->wide);
            }
            gelu(wide, rows * of->wide);
            if (member == 0 && way == 0)
                memcpy(hidden, wide, rows * of->wide * sizeof(float));
            linear(wide, rows, of->wide, of->second + member * of->wide * of->deep, of->second_bias + member * of->deep,
                   of->deep, deep);
            gelu(deep, rows * of->deep);
            for (size_t row = 0; row < rows; row++) {
                const float *own = known + (size_t)names[row] * each;
                const float *name = known + (size_t)names[way * rows + row] * each;
                logits[(way * of->members + member) * rows + row] =
                    tower_logit(of, member, plain[row] + (name[0] - own[0]), given + row * inputs,
                                deep + row * of->deep, name + 1, asked);
            }
        }
    }
}

/* Squared distances of rows to the nearest centroid; `work` has room for rows * width floats and a bias of `width`. */
static void distances(const float *features, const float *whitening, const float *centroids, size_t rows, size_t width,
                 size_t count, float *work, float *found)
{
    float *none = work, *white = work + width;
    memset(none, 0, width * sizeof(float));
    linear(features, rows, width, whitening, none, width, white);
    for (size_t row = 0; row < rows; row++) {
        found[row] = INFINITY;
        for (size_t number = 0; number < count; number++) {
            const float *own = white + row * width, *centre = centroids + number * width;
            eight sums = all8(0);
            size_t at = 0;
            for (; at + 8 <= width; at += 8) {
                eight apart = load8(own + at) - load8(centre + at);
                sums += apart * apart;
            }
            float sum = sum8(sums);
            for (; at < width; at++)
                sum += (own[at] - centre[at]) * (own[at] - centre[at]);
            found[row] = sum < found[row] || sum != sum ? sum : found[row];
        }
    }
}

/* Adds the leaves of all trees to what is found of rows; the trees were checked when they were made. */
static void trees(const Node *nodes, size_t count, size_t size, const float *rows, size_t row_count, size_t width,
                  double *found)
{
    for (size_t tree = 0; tree < count; tree++, nodes += size)
        for (size_t row = 0; row < row_count; row++) {
            const float *own = rows + row * width;
            const Node *at = nodes;
            while (at->feature >= 0)
                at = nodes + (own[at->feature] <= at->number ? at->left : at->right);
            found[row] += (double)at->number;
        }
}

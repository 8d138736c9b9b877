/* Included by `wide.c` and `narrow.c`: what `calibrator/readers/inspection/relevance.py` computes of two lists of pieces, its
   sums in the same order. */

typedef struct {
    float total, squared;
} Rarity;

typedef struct {
    float length;
    int is_any;
} Mean;

/* Where pieces of a part stand among the distinct ones. */
static void mark(const Side *side, const int32_t *some, size_t count, uint8_t *found)
{
    memset(found, 0, side->count);
    for (size_t at = 0; at < count; at++) {
        size_t low = 0, high = side->count;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (side->ids[middle] < some[at])
                low = middle + 1;
            else
                high = middle;
        }
        if (low < side->count && side->ids[low] == some[at])
            found[low] = 1;
    }
}

/* Sums of the rarities of those that are in both parts, and of their squares. */
static Rarity rarity_of(const float *rarity, const uint8_t *first, const uint8_t *second, size_t count)
{
    float own[MOST_PIECES] = {0}, squares[MOST_PIECES] = {0};
    size_t known = 0;
    for (size_t at = 0; at < count; at++)
        if ((!first || first[at]) && (!second || second[at])) {
            own[known] = rarity[at];
            squares[known] = rarity[at] * rarity[at];
            known++;
        }
    return (Rarity){added(own, known), added(squares, known)};
}

static double at_least(double x)
{
    return x > 1e-6 ? x : 1e-6;
}

static double *shares(Rarity both, Rarity asked, Rarity said, double *found)
{
    *found++ = (double)both.total / at_least((double)said.total);
    *found++ = (double)both.total / at_least((double)asked.total);
    *found++ = (double)both.squared / at_least((double)sqrtf(said.squared * asked.squared));
    return found;
}

/* The rarest in common, the rarest three of them, how many they are, and the reply's rarest. */
static double *rarest(const float *rarity, const uint8_t *is_shared, size_t count, double *found)
{
    float top[3] = {0, 0, 0}, most = 0; /* the rarest first */
    size_t known = 0;
    for (size_t at = 0; at < count; at++) {
        most = rarity[at] > most ? rarity[at] : most;
        if (!is_shared[at])
            continue;
        size_t place = known < 3 ? known : 3;
        while (place > 0 && rarity[at] > top[place - 1]) {
            if (place < 3)
                top[place] = top[place - 1];
            place--;
        }
        if (place < 3)
            top[place] = rarity[at];
        known++;
    }
    float sum = 0;
    for (size_t at = known < 3 ? known : 3; at > 0; at--)
        sum += top[at - 1];
    *found++ = known ? (double)top[0] : 0.0;
    *found++ = (double)sum;
    *found++ = log1p((double)known);
    *found++ = (double)most;
    return found;
}

/* Places of the rarest, the rarest first and earlier ones before later ones; gives how many. */
static size_t strongest(const float *rarity, size_t count, size_t *places)
{
    size_t known = 0;
    for (size_t at = 0; at < count; at++) {
        size_t place = known;
        while (place > 0 && rarity[at] > rarity[places[place - 1]])
            place--;
        if (place >= STRONGEST)
            continue;
        size_t last = known < STRONGEST ? known : STRONGEST - 1;
        memmove(places + place + 1, places + place, (last - place) * sizeof *places);
        places[place] = at;
        known = known < STRONGEST ? known + 1 : STRONGEST;
    }
    return known;
}

static void vector_of(const PieceTables *of, int32_t piece, float *found)
{
    const int8_t *row = of->table + (size_t)piece * of->width;
    eight scale = all8(of->scale[piece]);
    size_t at = 0;
    for (; at + 8 <= of->width; at += 8)
        store8(found + at, bytes8(row + at) * scale);
    for (; at < of->width; at++)
        found[at] = (float)row[at] * of->scale[piece];
}

/* What parts of a side mean, rare pieces weighing more: means (parts, width), `vector` is room for one. */
static void means_of(const PieceTables *of, const Side *side, const float *rarity, const uint8_t *const *parts,
                     size_t count, float *vector, float *means, Mean *found)
{
    memset(means, 0, count * of->width * sizeof(float));
    for (size_t part = 0; part < count; part++)
        found[part].is_any = 0;
    for (size_t number = 0; number < side->count; number++) {
        if (number + 8 < side->count) {
            const char *ahead = (const char *)(of->table + (size_t)side->ids[number + 8] * of->width);
            for (size_t at = 0; at < of->width; at += 64)
                __builtin_prefetch(ahead + at);
        }
        vector_of(of, side->ids[number], vector);
        for (size_t part = 0; part < count; part++) {
            if (parts[part] && !parts[part][number])
                continue;
            found[part].is_any = 1;
            float *mean = means + part * of->width, weight = rarity[number];
            size_t at = 0;
            for (; at + 8 <= of->width; at += 8)
                store8(mean + at, load8(mean + at) + all8(weight) * load8(vector + at));
            for (; at < of->width; at++)
                mean[at] += weight * vector[at];
        }
    }
    for (size_t part = 0; part < count; part++) {
        const float *mean = means + part * of->width;
        found[part].length = sqrtf(dot(mean, mean, of->width));
    }
}

static double cosine(const float *asked, Mean of_asked, const float *said, Mean of_said, size_t width)
{
    if (!of_asked.is_any || !of_said.is_any)
        return 0.0;
    return (double)dot(asked, said, width) / at_least((double)(of_asked.length * of_said.length));
}

static void sort_floats(float *x, size_t count)
{
    for (size_t at = 1; at < count; at++) {
        float own = x[at];
        size_t place = at;
        for (; place > 0 && x[place - 1] > own; place--)
            x[place] = x[place - 1];
        x[place] = own;
    }
}

/* Cosines of the rarest pieces of both sides, (STRONGEST, STRONGEST), of which rows * columns are written. */
static void compare_pieces(const float *first, size_t rows, const float *second, size_t columns, size_t width,
                           float *turned, float *found)
{
    for (size_t at = 0; at < width; at++)
        for (size_t column = 0; column < STRONGEST; column++)
            turned[at * STRONGEST + column] = column < columns ? second[column * width + at] : 0;
    for (size_t row = 0; row < rows; row++) {
        eight sums[STRONGEST / 8] = {all8(0), all8(0), all8(0)};
        for (size_t at = 0; at < width; at++)
            for (int part = 0; part < STRONGEST / 8; part++)
                sums[part] += all8(first[row * width + at]) * load8(turned + at * STRONGEST + 8 * part);
        for (int part = 0; part < STRONGEST / 8; part++)
            store8(found + row * STRONGEST + 8 * part, sums[part]);
    }
}

/* The rarest of distinct pieces, the rarest first, and their vectors (STRONGEST, width); gives how many. */
static size_t rarest_pieces(const PieceTables *of, const int32_t *ids, size_t count, int32_t *found, float *vectors)
{
    size_t places[STRONGEST];
    float rarity[MOST_PIECES];
    for (size_t at = 0; at < count; at++)
        rarity[at] = of->rarity[ids[at]];
    size_t known = strongest(rarity, count, places);
    for (size_t at = 0; at < known; at++) {
        found[at] = ids[places[at]];
        vector_of(of, found[at], vectors + at * of->width);
    }
    return known;
}

/* What the cosines of the rarest pieces of both sides, each row `stride` numbers, say of them: five numbers. */
static void compared(const PieceTables *of, const int32_t *first, size_t rows, const int32_t *second, size_t columns,
                     const float *alike, size_t stride, double *found)
{
    float by_first[STRONGEST], by_second[STRONGEST], others[STRONGEST];
    float weighed[STRONGEST], weights[STRONGEST], largest = -INFINITY;
    for (size_t at = 0; at < STRONGEST; at++)
        by_first[at] = by_second[at] = others[at] = -INFINITY;
    for (size_t row = 0; row < rows; row++)
        for (size_t column = 0; column < columns; column++) {
            float own = alike[row * stride + column];
            float other = first[row] == second[column] ? -1.0f : own;
            by_first[row] = own > by_first[row] ? own : by_first[row];
            by_second[column] = own > by_second[column] ? own : by_second[column];
            others[column] = other > others[column] ? other : others[column];
            largest = other > largest ? other : largest;
        }
    for (size_t row = 0; row < rows; row++) {
        weights[row] = of->rarity[first[row]];
        weighed[row] = by_first[row] * weights[row];
    }
    *found++ = (double)added(weighed, rows) / at_least((double)added(weights, rows));
    for (size_t column = 0; column < columns; column++) {
        weights[column] = of->rarity[second[column]];
        weighed[column] = by_second[column] * weights[column];
    }
    *found++ = (double)added(weighed, columns) / at_least((double)added(weights, columns));
    *found++ = (double)largest;
    sort_floats(others, columns);
    size_t top = columns < 3 ? columns : 3, half = columns / 2 ? columns / 2 : 1;
    *found++ = (double)(added(others + columns - top, top) / (float)top);
    sort_floats(by_second, columns);
    *found++ = (double)(added(by_second, half) / (float)half);
}

static void near_pieces(const PieceTables *of, const Side *asked, const Side *said, float *work, double *found)
{
    int32_t first[STRONGEST], second[STRONGEST];
    float alike[STRONGEST * STRONGEST];
    float *of_first = work, *of_second = of_first + STRONGEST * of->width, *turned = of_second + STRONGEST * of->width;
    size_t rows = rarest_pieces(of, asked->ids, asked->count, first, of_first);
    size_t columns = rarest_pieces(of, said->ids, said->count, second, of_second);
    compare_pieces(of_first, rows, of_second, columns, of->width, turned, alike);
    compared(of, first, rows, second, columns, alike, STRONGEST, found);
}

/* The share of the reply's runs of pieces that the question holds; pieces are below 65,536. */
static double copied(const Side *asked, const Side *said)
{
    enum { SLOTS = 1024 };
    uint64_t held[SLOTS];
    uint8_t is_held[SLOTS] = {0};
    if (asked->kept_count < RUN || said->kept_count < RUN)
        return 0.0;
    size_t common = 0;
    for (int is_said = 0; is_said < 2; is_said++) {
        const Side *side = is_said ? said : asked;
        for (size_t at = 0; at + RUN <= side->kept_count; at++) {
            const int32_t *own = side->kept + at;
            uint64_t run = (uint64_t)own[0] << 48 | (uint64_t)own[1] << 32 | (uint64_t)own[2] << 16 | (uint64_t)own[3];
            size_t slot = (size_t)((run * 0x9E3779B97F4A7C15u) >> 54);
            while (is_held[slot] && held[slot] != run)
                slot = (slot + 1) % SLOTS;
            if (is_said)
                common += is_held[slot];
            else {
                held[slot] = run;
                is_held[slot] = 1;
            }
        }
    }
    return (double)common / (double)(said->kept_count - RUN + 1);
}

/* `work` has room for (3 * STRONGEST + 6) * width floats; both sides have a piece */
static void meant(const PieceTables *of, const Side *asked, const float *asked_rarity, const uint8_t *end_asked,
                  const Side *said, const float *said_rarity, const uint8_t *end_said, const uint8_t *is_added,
                  float *work, double *found)
{
    const uint8_t *asked_parts[2] = {NULL, end_asked}, *said_parts[3] = {NULL, end_said, is_added};
    size_t width = of->width;
    float *vector = work, *asks = vector + width, *says = asks + 2 * width;
    Mean of_asked[2], of_said[3];
    means_of(of, asked, asked_rarity, asked_parts, 2, vector, asks, of_asked);
    means_of(of, said, said_rarity, said_parts, 3, vector, says, of_said);
    const int pairs[5][2] = {{0, 0}, {1, 0}, {0, 1}, {0, 2}, {1, 2}};
    for (int pair = 0; pair < 5; pair++) {
        int first = pairs[pair][0], second = pairs[pair][1];
        *found++ = cosine(asks + (size_t)first * width, of_asked[first], says + (size_t)second * width, of_said[second],
                          width);
    }
    near_pieces(of, asked, said, says + 3 * width, found);
}

static void relevance(const PieceTables *of, const Side *asked, const Side *said, float *work, double *found)
{
    float asked_rarity[MOST_PIECES], said_rarity[MOST_PIECES];
    uint8_t end_asked[MOST_PIECES], end_said[MOST_PIECES], start_said[MOST_PIECES];
    uint8_t is_shared[MOST_PIECES], is_added[MOST_PIECES], at_end[MOST_PIECES];
    for (size_t at = 0; at < asked->count; at++)
        asked_rarity[at] = of->rarity[asked->ids[at]];
    for (size_t at = 0; at < said->count; at++)
        said_rarity[at] = of->rarity[said->ids[at]];
    size_t asked_end = asked->kept_count < END ? asked->kept_count : END;
    size_t said_end = said->kept_count < END ? said->kept_count : END;
    mark(asked, asked->kept + asked->kept_count - asked_end, asked_end, end_asked);
    mark(said, said->kept + said->kept_count - said_end, said_end, end_said);
    mark(said, said->kept, said_end, start_said);
    mark(said, asked->ids, asked->count, is_shared);
    mark(said, asked->kept + asked->kept_count - asked_end, asked_end, at_end);
    for (size_t at = 0; at < said->count; at++)
        is_added[at] = !is_shared[at];
    Rarity all_asked = rarity_of(asked_rarity, NULL, NULL, asked->count);
    Rarity all_said = rarity_of(said_rarity, NULL, NULL, said->count);
    double *to = found;
    to = shares(rarity_of(said_rarity, is_shared, NULL, said->count), all_asked, all_said, to);
    to = rarest(said_rarity, is_shared, said->count, to);
    to = shares(rarity_of(said_rarity, at_end, NULL, said->count),
                rarity_of(asked_rarity, end_asked, NULL, asked->count), all_said, to);
    to = shares(rarity_of(said_rarity, is_shared, end_said, said->count), all_asked,
                rarity_of(said_rarity, end_said, NULL, said->count), to);
    to = shares(rarity_of(said_rarity, is_shared, start_said, said->count), all_asked,
                rarity_of(said_rarity, start_said, NULL, said->count), to);
    memset(to, 0, COSINES * sizeof *to);
    if (asked->count && said->count)
        meant(of, asked, asked_rarity, end_asked, said, said_rarity, end_said, is_added, work, to);
    to[COSINES] = copied(asked, said);
}

/* What the kernel computes, without Python: pointers that were checked in, numbers out.

   `arithmetic_body.h` has the functions. It is compiled twice on x86-64, for machines with AVX2 and FMA and for all
   others, and once elsewhere; `chosen_arithmetic` gives what fits this machine. */
#ifndef ARITHMETIC_H
#define ARITHMETIC_H

#include <stddef.h>
#include <stdint.h>

enum { STRONGEST = 24, MOST_PIECES = 320, RUN = 4, END = 48, SHARED_TRAITS = 27, COSINES = 10, TILE = 32, LANES = 16 };

typedef struct {
    const int8_t *table;    /* (rows, members, width) */
    const uint16_t *scales; /* (rows, members) float16 */
    size_t members, width;
} BagTables;

typedef struct {
    const uint16_t *places; /* (size,) the row of each bucket, `rows` for none; the last stands for all beyond */
    const float *rarity, *scale; /* (rows,) */
    const int8_t *table;         /* (rows, width) */
    size_t size, rows, width;
} TopicTable;

typedef struct {
    const int8_t *table; /* (pieces, width) */
    const float *scale;  /* (pieces,) */
    size_t pieces, width;
    const int8_t *tiles; /* (tiles, (width + 1) / 2, 2 * TILE): the questions, two numbers of each side by side */
    const float *lengths; /* (tiles * TILE,) of the questions */
    const float *share, *weight; /* (questions,) */
    const float *factors; /* (3, tiles * TILE) what is none in the last tile nought: 1 / length, weight, weight * share */
    size_t questions;
    float nearness, prior, base;
} DifficultyTables;

typedef struct {
    size_t members, traits, words, deep, wide, name; /* 4, 83, 160, 64, 256, 24 of the shipped one */
    const float *center, *spread, *linear;           /* (members, traits) */
    const float *norm_weight, *norm_bias;            /* (members, words) */
    const float *names;                              /* (members, known, 1 + name) */
    size_t known;
    const float *first, *first_bias;   /* (members, inputs, wide), (members, wide) */
    const float *second, *second_bias; /* (members, wide, deep), (members, deep) */
    const float *last, *last_bias;     /* (members, deep), (members,) */
    const float *asked, *asked_bias;   /* (members, width, name), (members, name) */
    size_t width, parts;               /* of a part's words */
    float limit, epsilon;
} TowerWeights;

typedef struct {
    float number; /* the threshold of a node, the value of a leaf */
    int16_t feature; /* -1: a leaf */
    uint8_t left, right;
} Node;

typedef struct {
    const int8_t *table; /* (pieces, width) */
    const float *scale, *rarity; /* (pieces,) */
    size_t width;
    const double *thresholds; /* (COSINES, each) which trees compare with them, ascending, then infinite */
    size_t each;
    double rounding; /* of a cosine */
} PieceTables;

typedef struct {
    const int8_t *tiles;    /* (outputs / LANES, inputs / 4, LANES, 4), -7 to 7 */
    const float *scales;    /* (outputs / LANES, inputs / group, LANES) */
    const int32_t *offsets; /* of the same shape: 128 times the sum of a group's weights */
    const float *bias;      /* (outputs,) */
    size_t inputs, outputs, group;
} QuantizedLayer;

typedef struct {
    const int32_t *kept; /* as they stand in the text */
    size_t kept_count;
    const int32_t *ids; /* the distinct ones, ascending */
    size_t count;
} Side;

typedef struct {
    void (*bags)(const BagTables *, const int32_t *ids, size_t count, float *found);
    void (*topics)(const TopicTable *, const int32_t *ids, size_t count, float *work, float *found);
    void (*difficulty)(const DifficultyTables *, const int32_t *const *ids, const size_t *counts, size_t rows,
                       const float *beside, size_t beside_count, float *work, float *found);
    void (*tower)(const TowerWeights *, const float *bags, const float *traits, const int64_t *names, size_t ways,
                  size_t rows, float *work, float *logits, float *hidden);
    void (*distances)(const float *features, const float *whitening, const float *centroids, size_t rows, size_t width,
                 size_t count, float *work, float *found);
    void (*trees)(const Node *, size_t trees, size_t nodes, const float *rows, size_t count, size_t width,
                  double *found);
    void (*gelu)(float *x, size_t count);
    void (*quantized_linear)(const QuantizedLayer *, const float *x, size_t rows, uint8_t *work, float *steps, float *out);
    void (*relevance)(const PieceTables *, const Side *asked, const Side *said, float *work, double *found);
    size_t (*rarest_pieces)(const PieceTables *, const int32_t *ids, size_t count, int32_t *found, float *vectors);
    void (*compared)(const PieceTables *, const int32_t *first, size_t rows, const int32_t *second, size_t columns,
                     const float *alike, size_t stride, double *found);
} Arithmetic;

extern const Arithmetic narrow_arithmetic;
const Arithmetic *chosen_arithmetic(void);

#endif

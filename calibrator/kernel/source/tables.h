/* Arrays and tables that Python hands over: checked then, tables held as long as the capsules that stand for them. */
#ifndef TABLES_H
#define TABLES_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000 /* 3.11, the first whose limited API has buffers */
#endif
#include <Python.h>
#include <stdint.h>

#include "arithmetic.h"

/* --- arrays that come from Python: kind and shape are checked before anything is read of them ------------------------ */

typedef struct {
    Py_buffer *held; /* of a fixed room, for a buffer may point into itself */
    Py_ssize_t count, room;
} Arrays;

/* Makes room for so many arrays; 0, or -1 with MemoryError. */
int open_arrays(Arrays *arrays, Py_ssize_t room);

/* Lets go of all arrays; to be called once after `open_arrays`, whatever it gave. */
void close_arrays(Arrays *arrays);

/* An array of a kind (struct's letters: b int8, B uint8, H uint16, i int32, q int64, e float16, f float32, d float64) and of so
   many dimensions, rows in C order; NULL with TypeError or ValueError for any other. */
Py_buffer *array_of(Arrays *arrays, PyObject *given, char kind, int dimensions, int is_written);

/* The numbers of an array of int32, a list or a tuple, each at least 0 and below `limit`; of a long one the first `head`
   and the last `tail`. Gives how many were written, or -1 with an exception. */
Py_ssize_t numbers_of(PyObject *given, int32_t limit, Py_ssize_t head, Py_ssize_t tail, int32_t *found);

/* The distinct ones of such numbers, ascending, which may be written where they stand; gives how many. `marks` has a bit
   for each number up to the largest, all of them nought. */
size_t distinct_of(const int32_t *some, size_t count, uint64_t *marks, int32_t *found);

/* --- tables ---------------------------------------------------------------------------------------------------------- */

enum { PARTS = 5 };

extern const Arithmetic *arithmetic; /* what fits this machine, chosen when the module loads */

/* What a function of the module needs of a capsule; NULL with an exception for another object. */
void *held(PyObject *capsule, const char *name);

PyObject *make_bag_tables(PyObject *module, PyObject *args);
PyObject *make_topic_tables(PyObject *module, PyObject *args);
PyObject *make_difficulty_tables(PyObject *module, PyObject *args);
PyObject *make_tower_weights(PyObject *module, PyObject *args);
PyObject *make_trees(PyObject *module, PyObject *args);
PyObject *make_piece_tables(PyObject *module, PyObject *args);
PyObject *make_quantized_layer(PyObject *module, PyObject *args);

/* Functions of the module that have files of their own. */
PyObject *make_vocabulary(PyObject *module, PyObject *args);
PyObject *cut(PyObject *module, PyObject *args);
PyObject *grams(PyObject *module, PyObject *args);
PyObject *relevance(PyObject *module, PyObject *args);
PyObject *rarest(PyObject *module, PyObject *args);
PyObject *compared(PyObject *module, PyObject *args);
PyObject *distinct_pieces(PyObject *module, PyObject *pieces);
PyObject *quantized_linear(PyObject *module, PyObject *args);
PyObject *gelu(PyObject *module, PyObject *args);
PyObject *word_counts(PyObject *module, PyObject *args);
PyObject *beginnings(PyObject *module, PyObject *args);
PyObject *make_index(PyObject *module, PyObject *text);
PyObject *make_needles(PyObject *module, PyObject *args);
PyObject *hold_any(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *make_shape(PyObject *module, PyObject *args);
PyObject *has_shape(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *numbers(PyObject *module, PyObject *text);
PyObject *digits(PyObject *module, PyObject *text);

#define BAGS "calibrator.kernel.bags"
#define TOPICS "calibrator.kernel.topics"
#define DIFFICULTY "calibrator.kernel.difficulty"
#define TOWER "calibrator.kernel.tower"
#define TREES "calibrator.kernel.trees"
#define PIECES "calibrator.kernel.pieces"
#define VOCABULARY "calibrator.kernel.vocabulary"
#define QUANTIZED_LAYER "calibrator.kernel.quantized_layer"

typedef struct {
    Arrays arrays;
    BagTables tables;
    int32_t rows;
} HeldBags;

typedef struct {
    Arrays arrays;
    TopicTable tables[PARTS];
    size_t width; /* of all parts */
} HeldTopics;

typedef struct {
    Arrays arrays;
    DifficultyTables tables;
} HeldDifficulty;

typedef struct {
    Arrays arrays;
    TowerWeights weights;
} HeldTower;

typedef struct {
    Arrays arrays;
    const Node *nodes;
    size_t trees, size, width;
} HeldTrees;

typedef struct {
    Arrays arrays;
    PieceTables tables;
    int32_t pieces;
} HeldPieces;

typedef struct {
    Arrays arrays;
    QuantizedLayer layer;
} HeldQuantizedLayer;

#endif

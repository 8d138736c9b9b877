/* Tables that Python hands over once: checked then, and held as long as the capsule that stands for them. */
#ifndef TABLES_H
#define TABLES_H

#include "arithmetic.h"
#include "arrays.h"

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
PyObject *make_packed_layer(PyObject *module, PyObject *args);

/* Functions of the module that have files of their own. */
PyObject *make_vocabulary(PyObject *module, PyObject *args);
PyObject *cut(PyObject *module, PyObject *args);
PyObject *grams(PyObject *module, PyObject *args);
PyObject *packed_linear(PyObject *module, PyObject *args);
PyObject *gelu(PyObject *module, PyObject *args);

#define BAGS "calibrator.kernel.bags"
#define TOPICS "calibrator.kernel.topics"
#define DIFFICULTY "calibrator.kernel.difficulty"
#define TOWER "calibrator.kernel.tower"
#define TREES "calibrator.kernel.trees"
#define PIECES "calibrator.kernel.pieces"
#define VOCABULARY "calibrator.kernel.vocabulary"
#define LAYER "calibrator.kernel.layer"

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
    PackedLayer layer;
} HeldLayer;

#endif

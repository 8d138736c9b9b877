#include "tables.h"

/* Every struct that a capsule holds begins with its arrays. */
static void let_go(PyObject *capsule)
{
    void *own = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    if (own != NULL) {
        close_arrays((Arrays *)own);
        PyMem_Free(own);
    }
}

void *held(PyObject *capsule, const char *name)
{
    return PyCapsule_GetPointer(capsule, name);
}

static void *opened(size_t size, Py_ssize_t room)
{
    void *own = PyMem_Calloc(1, size);
    if (own == NULL)
        PyErr_NoMemory();
    else if (open_arrays((Arrays *)own, room) < 0) {
        PyMem_Free(own);
        own = NULL;
    }
    return own;
}

/* The capsule of what was filled, or NULL after letting go of it. */
static PyObject *sealed(void *own, const char *name, int is_whole)
{
    PyObject *capsule = is_whole ? PyCapsule_New(own, name, let_go) : NULL;
    if (capsule == NULL) {
        close_arrays((Arrays *)own);
        PyMem_Free(own);
    }
    return capsule;
}

/* An array of at most three dimensions with these sizes; -1 stands for any. */
static const void *shaped(Arrays *arrays, PyObject *given, char kind, int dimensions, Py_ssize_t a, Py_ssize_t b,
                          Py_ssize_t c)
{
    const Py_ssize_t wanted[3] = {a, b, c};
    Py_buffer *view = array_of(arrays, given, kind, dimensions, 0);
    if (view == NULL)
        return NULL;
    for (int at = 0; at < dimensions; at++)
        if (wanted[at] >= 0 && view->shape[at] != wanted[at]) {
            PyErr_Format(PyExc_ValueError, "an array of %zd along dimension %d, where %zd are wanted", view->shape[at], at,
                         wanted[at]);
            return NULL;
        }
    if (view->len == 0) {
        PyErr_SetString(PyExc_ValueError, "a table without numbers");
        return NULL;
    }
    return view->buf;
}

static Py_ssize_t size_of(const Arrays *arrays, int dimension)
{
    return arrays->held[arrays->count - 1].shape[dimension];
}

PyObject *make_bag_tables(PyObject *module, PyObject *args)
{
    PyObject *table, *scales;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &table, &scales))
        return NULL;
    HeldBags *own = opened(sizeof *own, 2);
    if (own == NULL)
        return NULL;
    BagTables *of = &own->tables;
    int is_whole = 0;
    if ((of->table = shaped(&own->arrays, table, 'b', 3, -1, -1, -1)) != NULL) {
        Py_ssize_t rows = size_of(&own->arrays, 0);
        own->rows = rows < INT32_MAX ? (int32_t)rows : INT32_MAX;
        of->members = (size_t)size_of(&own->arrays, 1);
        of->width = (size_t)size_of(&own->arrays, 2);
        of->scales = shaped(&own->arrays, scales, 'e', 2, rows, (Py_ssize_t)of->members, -1);
        is_whole = of->scales != NULL;
    }
    return sealed(own, BAGS, is_whole);
}

static int fill_topics(HeldTopics *own, int part, PyObject *given)
{
    PyObject *places, *rarity, *scale, *table;
    TopicTable *of = &own->tables[part];
    Arrays *arrays = &own->arrays;
    if (!PyArg_ParseTuple(given, "OOOO", &places, &rarity, &scale, &table))
        return 0;
    if ((of->table = shaped(arrays, table, 'b', 2, -1, -1, -1)) == NULL)
        return 0;
    of->rows = (size_t)size_of(arrays, 0);
    of->width = (size_t)size_of(arrays, 1);
    own->width += of->width;
    if ((of->places = shaped(arrays, places, 'H', 1, -1, -1, -1)) == NULL)
        return 0;
    of->size = (size_t)size_of(arrays, 0);
    of->rarity = shaped(arrays, rarity, 'f', 1, (Py_ssize_t)of->rows, -1, -1);
    of->scale = of->rarity ? shaped(arrays, scale, 'f', 1, (Py_ssize_t)of->rows, -1, -1) : NULL;
    return of->scale != NULL;
}

PyObject *make_topic_tables(PyObject *module, PyObject *args)
{
    PyObject *parts[PARTS];
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!", &PyTuple_Type, &parts[0], &PyTuple_Type, &parts[1], &PyTuple_Type,
                          &parts[2], &PyTuple_Type, &parts[3], &PyTuple_Type, &parts[4]))
        return NULL;
    HeldTopics *own = opened(sizeof *own, 4 * PARTS);
    if (own == NULL)
        return NULL;
    int is_whole = 1;
    for (int part = 0; part < PARTS && is_whole; part++)
        is_whole = fill_topics(own, part, parts[part]);
    return sealed(own, TOPICS, is_whole);
}

PyObject *make_difficulty_tables(PyObject *module, PyObject *args)
{
    PyObject *table, *scale, *tiles, *lengths, *share, *weight, *factors;
    float nearness, prior, base;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOOOOOfff", &table, &scale, &tiles, &lengths, &share, &weight, &factors, &nearness,
                          &prior, &base))
        return NULL;
    HeldDifficulty *own = opened(sizeof *own, 7);
    if (own == NULL)
        return NULL;
    DifficultyTables *of = &own->tables;
    Arrays *arrays = &own->arrays;
    int is_whole = 0;
    if ((of->table = shaped(arrays, table, 'b', 2, -1, -1, -1)) != NULL) {
        of->pieces = (size_t)size_of(arrays, 0);
        of->width = (size_t)size_of(arrays, 1);
        of->share = shaped(arrays, share, 'f', 1, -1, -1, -1);
        of->questions = of->share ? (size_t)size_of(arrays, 0) : 0;
        Py_ssize_t count = (Py_ssize_t)((of->questions + TILE - 1) / TILE);
        is_whole = of->share != NULL &&
                   (of->weight = shaped(arrays, weight, 'f', 1, (Py_ssize_t)of->questions, -1, -1)) != NULL &&
                   (of->scale = shaped(arrays, scale, 'f', 1, (Py_ssize_t)of->pieces, -1, -1)) != NULL &&
                   (of->tiles = shaped(arrays, tiles, 'b', 3, count, (Py_ssize_t)(of->width + 1) / 2, 2 * TILE)) != NULL &&
                   (of->lengths = shaped(arrays, lengths, 'f', 1, count * TILE, -1, -1)) != NULL &&
                   (of->factors = shaped(arrays, factors, 'f', 2, 3, count * TILE, -1)) != NULL;
    }
    of->nearness = nearness;
    of->prior = prior;
    of->base = base;
    return sealed(own, DIFFICULTY, is_whole);
}

/* The arrays of a tower in the order of `make_tower_weights`, their first layer's inputs told by their sizes. */
static int fill_tower(HeldTower *own, PyObject *const *given)
{
    TowerWeights *of = &own->weights;
    Arrays *arrays = &own->arrays;
    if ((of->names = shaped(arrays, given[0], 'f', 3, -1, -1, -1)) == NULL)
        return 0;
    Py_ssize_t members = size_of(arrays, 0), name = size_of(arrays, 2) - 1;
    of->known = (size_t)size_of(arrays, 1);
    if ((of->linear = shaped(arrays, given[1], 'f', 2, members, -1, -1)) == NULL)
        return 0;
    Py_ssize_t traits = size_of(arrays, 1);
    if ((of->norm_weight = shaped(arrays, given[4], 'f', 2, members, -1, -1)) == NULL)
        return 0;
    Py_ssize_t words = size_of(arrays, 1);
    if ((of->asked = shaped(arrays, given[12], 'f', 3, members, -1, name)) == NULL)
        return 0;
    Py_ssize_t width = size_of(arrays, 1);
    if ((of->first = shaped(arrays, given[6], 'f', 3, members, words + 2 * width + name + traits, -1)) == NULL)
        return 0;
    Py_ssize_t wide = size_of(arrays, 2);
    if ((of->second = shaped(arrays, given[8], 'f', 3, members, wide, -1)) == NULL)
        return 0;
    Py_ssize_t deep = size_of(arrays, 2);
    of->members = (size_t)members, of->traits = (size_t)traits, of->words = (size_t)words, of->deep = (size_t)deep;
    of->wide = (size_t)wide, of->name = (size_t)name, of->width = (size_t)width, of->parts = (size_t)(words / width);
    if (words != width * (words / width) || of->parts < 3) {
        PyErr_SetString(PyExc_ValueError, "a tower whose words are no parts");
        return 0;
    }
    return (of->center = shaped(arrays, given[2], 'f', 2, members, traits, -1)) != NULL &&
           (of->spread = shaped(arrays, given[3], 'f', 2, members, traits, -1)) != NULL &&
           (of->norm_bias = shaped(arrays, given[5], 'f', 2, members, words, -1)) != NULL &&
           (of->first_bias = shaped(arrays, given[7], 'f', 2, members, wide, -1)) != NULL &&
           (of->second_bias = shaped(arrays, given[9], 'f', 2, members, deep, -1)) != NULL &&
           (of->last = shaped(arrays, given[10], 'f', 3, members, deep, 1)) != NULL &&
           (of->last_bias = shaped(arrays, given[11], 'f', 2, members, 1, -1)) != NULL &&
           (of->asked_bias = shaped(arrays, given[13], 'f', 2, members, name, -1)) != NULL;
}

PyObject *make_tower_weights(PyObject *module, PyObject *args)
{
    PyObject *given[14];
    float limit, epsilon;
    (void)module;
    if (!PyArg_ParseTuple(args, "(OOOOOOOOOOOOOO)ff", &given[0], &given[1], &given[2], &given[3], &given[4], &given[5],
                          &given[6], &given[7], &given[8], &given[9], &given[10], &given[11], &given[12], &given[13],
                          &limit, &epsilon))
        return NULL;
    HeldTower *own = opened(sizeof *own, 14);
    if (own == NULL)
        return NULL;
    own->weights.limit = limit;
    own->weights.epsilon = epsilon;
    return sealed(own, TOWER, fill_tower(own, given));
}

/* Whether every way through a tree comes to a leaf and reads a column that rows have. */
static int is_tree(const Node *nodes, size_t size, size_t width)
{
    for (size_t at = 0; at < size; at++) {
        const Node *own = &nodes[at];
        /* branches lead on, never back, so that no way is endless */
        if (own->feature >= 0 && ((size_t)own->feature >= width || own->left >= size || own->right >= size ||
                                  own->left <= at || own->right <= at))
            return 0;
    }
    return 1;
}

PyObject *make_trees(PyObject *module, PyObject *args)
{
    PyObject *nodes;
    Py_ssize_t width;
    (void)module;
    if (!PyArg_ParseTuple(args, "On", &nodes, &width))
        return NULL;
    HeldTrees *own = opened(sizeof *own, 1);
    if (own == NULL)
        return NULL;
    own->nodes = shaped(&own->arrays, nodes, 'B', 3, -1, -1, sizeof(Node));
    int is_whole = own->nodes != NULL && width > 0;
    if (is_whole) {
        own->trees = (size_t)size_of(&own->arrays, 0);
        own->size = (size_t)size_of(&own->arrays, 1);
        own->width = (size_t)width;
        for (size_t tree = 0; tree < own->trees && is_whole; tree++)
            is_whole = is_tree(own->nodes + tree * own->size, own->size, own->width);
    }
    if (!is_whole && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "trees whose branches lead nowhere");
    return sealed(own, TREES, is_whole);
}

PyObject *make_piece_tables(PyObject *module, PyObject *args)
{
    PyObject *table, *scale, *rarity, *thresholds;
    double rounding;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOOd", &table, &scale, &rarity, &thresholds, &rounding))
        return NULL;
    HeldPieces *own = opened(sizeof *own, 4);
    if (own == NULL)
        return NULL;
    PieceTables *of = &own->tables;
    int is_whole = 0;
    if ((of->table = shaped(&own->arrays, table, 'b', 2, -1, -1, -1)) != NULL) {
        Py_ssize_t pieces = size_of(&own->arrays, 0);
        of->width = (size_t)size_of(&own->arrays, 1);
        own->pieces = pieces <= UINT16_MAX + 1 ? (int32_t)pieces : UINT16_MAX + 1; /* as `copied` needs */
        is_whole = (of->scale = shaped(&own->arrays, scale, 'f', 1, pieces, -1, -1)) != NULL &&
                   (of->rarity = shaped(&own->arrays, rarity, 'f', 1, pieces, -1, -1)) != NULL &&
                   (of->thresholds = shaped(&own->arrays, thresholds, 'd', 2, COSINES, -1, -1)) != NULL;
        of->each = is_whole ? (size_t)size_of(&own->arrays, 1) : 0;
        of->rounding = rounding;
    }
    return sealed(own, PIECES, is_whole);
}

PyObject *make_quantized_layer(PyObject *module, PyObject *args)
{
    PyObject *tiles, *scales, *offsets, *bias;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOO", &tiles, &scales, &offsets, &bias))
        return NULL;
    HeldQuantizedLayer *own = opened(sizeof *own, 4);
    if (own == NULL)
        return NULL;
    QuantizedLayer *of = &own->layer;
    int is_whole = 0;
    if ((of->tiles = shaped(&own->arrays, tiles, 'b', 3, -1, -1, 4 * LANES)) != NULL) {
        Py_ssize_t count = size_of(&own->arrays, 0);
        of->inputs = 4 * (size_t)size_of(&own->arrays, 1);
        of->outputs = (size_t)count * LANES;
        if ((of->scales = shaped(&own->arrays, scales, 'f', 3, count, -1, LANES)) != NULL) {
            Py_ssize_t groups = size_of(&own->arrays, 1);
            of->group = of->inputs / (size_t)groups;
            of->offsets = shaped(&own->arrays, offsets, 'i', 3, count, groups, LANES);
            if (of->offsets != NULL)
                of->bias = shaped(&own->arrays, bias, 'f', 1, (Py_ssize_t)of->outputs, -1, -1);
            is_whole = of->offsets != NULL && of->bias != NULL;
            if (is_whole && (of->group * (size_t)groups != of->inputs || of->group % 4 != 0)) {
                PyErr_SetString(PyExc_ValueError, "a layer whose groups are not alike");
                is_whole = 0;
            }
            for (size_t at = 0; is_whole && at < of->inputs * of->outputs; at++)
                if (of->tiles[at] < -7 || of->tiles[at] > 7) {
                    PyErr_SetString(PyExc_ValueError, "a weight of more than four bits");
                    is_whole = 0;
                }
        }
    }
    return sealed(own, QUANTIZED_LAYER, is_whole);
}

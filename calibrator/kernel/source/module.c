/* The functions that Python calls; `_compiled.pyi` says what each takes and gives.

   They hold no state. Those that take long let other threads run while they compute; to do so for some microseconds
   costs more than it gains, since whoever gets Python's lock meanwhile has to be waited for. */
#include "tables.h"

#include <stdlib.h>
#include <string.h>

#ifndef SOURCES
#define SOURCES "" /* the digest of these files, by which Python tells what was built of others */
#endif

const Arithmetic *arithmetic = &narrow_arithmetic;

/* The n-grams of rows: each a tuple of PARTS arrays, whose numbers are at least 0 and below a limit. */
static Py_ssize_t open_rows(Arrays *arrays, PyObject *rows, int32_t limit)
{
    if (!PyList_Check(rows)) {
        PyErr_SetString(PyExc_TypeError, "rows stand in a list");
        arrays->held = NULL;
        arrays->count = 0;
        return -1;
    }
    Py_ssize_t count = PyList_Size(rows);
    if (open_arrays(arrays, count * PARTS + 2) < 0)
        return -1;
    for (Py_ssize_t row = 0; row < count; row++) {
        PyObject *parts = PyList_GetItem(rows, row);
        if (parts == NULL || !PyTuple_Check(parts) || PyTuple_Size(parts) != PARTS) {
            PyErr_Format(PyExc_TypeError, "a row is a tuple of %d arrays", PARTS);
            return -1;
        }
        for (int part = 0; part < PARTS; part++) {
            Py_buffer *view = array_of(arrays, PyTuple_GetItem(parts, part), 'i', 1, 0);
            if (view == NULL)
                return -1;
            const int32_t *ids = view->buf;
            for (Py_ssize_t at = 0; at < view->shape[0]; at++)
                if (ids[at] < 0 || ids[at] >= limit) {
                    PyErr_Format(PyExc_IndexError, "%d is no n-gram below %d", (int)ids[at], (int)limit);
                    return -1;
                }
        }
    }
    return count;
}

static int is_shaped(const Py_buffer *view, Py_ssize_t a, Py_ssize_t b, Py_ssize_t c, Py_ssize_t d)
{
    const Py_ssize_t wanted[4] = {a, b, c, d};
    for (int at = 0; at < view->ndim; at++)
        if (view->shape[at] != wanted[at]) {
            PyErr_Format(PyExc_ValueError, "an array of %zd along dimension %d, where %zd are wanted", view->shape[at], at,
                         wanted[at]);
            return 0;
        }
    return 1;
}

/* --- jobs: what takes long, read and checked first, then computed while other threads run ---------------------------- */

typedef struct Job {
    Arrays arrays;
    const void *tables; /* of the capsule */
    size_t rows, ways;
    void *work;
    float *found;
    Py_ssize_t stride; /* of a row of what is found, where it is a part of one */
    void (*compute)(const struct Job *);
} Job;

/* Reads a job's arguments; 0 with an exception where they do not fit. Whatever it gives, the job is closed after it. */
typedef int Opener(PyObject *args, Job *job);

static void close_job(Job *job)
{
    PyMem_Free(job->work);
    close_arrays(&job->arrays);
}

static int has_work(Job *job, size_t bytes)
{
    if ((job->work = PyMem_Malloc(bytes + 1)) == NULL)
        PyErr_NoMemory();
    return job->work != NULL;
}

static void compute_bags(const Job *job)
{
    const BagTables *of = job->tables;
    for (size_t at = 0; at < job->rows * PARTS; at++)
        arithmetic->bags(of, job->arrays.held[at].buf, (size_t)job->arrays.held[at].shape[0],
                         job->found + at * of->members * of->width);
}

static int open_bags(PyObject *args, Job *job)
{
    PyObject *capsule, *rows, *out;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &rows, &out))
        return 0;
    const HeldBags *own = held(capsule, BAGS);
    if (own == NULL)
        return 0;
    Py_ssize_t count = open_rows(&job->arrays, rows, own->rows);
    Py_buffer *found = count < 0 ? NULL : array_of(&job->arrays, out, 'f', 4, 1);
    if (found == NULL ||
        !is_shaped(found, count, PARTS, (Py_ssize_t)own->tables.members, (Py_ssize_t)own->tables.width))
        return 0;
    job->tables = &own->tables, job->rows = (size_t)count, job->found = found->buf, job->compute = compute_bags;
    return 1;
}

static void compute_topics(const Job *job)
{
    const HeldTopics *of = job->tables;
    for (size_t row = 0; row < job->rows; row++) {
        float *to = job->found + (Py_ssize_t)row * job->stride;
        for (int part = 0; part < PARTS; part++) {
            const Py_buffer *ids = &job->arrays.held[row * PARTS + (size_t)part];
            arithmetic->topics(&of->tables[part], ids->buf, (size_t)ids->shape[0], job->work, to);
            to += of->tables[part].width;
        }
    }
}

static int open_topics(PyObject *args, Job *job)
{
    PyObject *capsule, *rows, *out;
    Py_ssize_t start;
    if (!PyArg_ParseTuple(args, "OOOn", &capsule, &rows, &out, &start))
        return 0;
    const HeldTopics *own = held(capsule, TOPICS);
    if (own == NULL)
        return 0;
    Py_ssize_t count = open_rows(&job->arrays, rows, INT32_MAX);
    Py_buffer *found = count < 0 ? NULL : array_of(&job->arrays, out, 'f', 2, 1);
    if (found == NULL)
        return 0;
    size_t most = 1;
    for (Py_ssize_t at = 0; at < count * PARTS; at++)
        most = (size_t)job->arrays.held[at].shape[0] > most ? (size_t)job->arrays.held[at].shape[0] : most;
    if (start < 0 || found->shape[0] != count || start + (Py_ssize_t)own->width > found->shape[1]) {
        PyErr_SetString(PyExc_ValueError, "topics do not fit there");
        return 0;
    }
    job->tables = own, job->rows = (size_t)count, job->found = (float *)found->buf + start;
    job->stride = found->shape[1], job->compute = compute_topics;
    return has_work(job, 2 * most * sizeof(float));
}

/* The word pieces of a question, each below a limit. */
static int open_pieces(Arrays *arrays, PyObject *given, size_t limit)
{
    Py_buffer *view = given == NULL ? NULL : array_of(arrays, given, 'i', 1, 0);
    if (view == NULL)
        return 0;
    const int32_t *ids = view->buf;
    for (Py_ssize_t at = 0; at < view->shape[0]; at++)
        if (ids[at] < 0 || (size_t)ids[at] >= limit) {
            PyErr_SetString(PyExc_IndexError, "a word piece without a meaning");
            return 0;
        }
    return 1;
}

/* The work of a difficulty has the questions' pieces first, then their counts, then room for floats; what stands beside
   thresholds is the last array but one, where it is given. */
static void compute_difficulty(const Job *job)
{
    const int32_t **ids = job->work;
    size_t *counts = (size_t *)(ids + job->rows);
    for (size_t row = 0; row < job->rows; row++) {
        ids[row] = job->arrays.held[row].buf;
        counts[row] = (size_t)job->arrays.held[row].shape[0];
    }
    const Py_buffer *beside = (size_t)job->arrays.count > job->rows + 1 ? &job->arrays.held[job->rows] : NULL;
    arithmetic->difficulty(job->tables, ids, counts, job->rows, beside ? beside->buf : NULL,
                           beside ? (size_t)beside->shape[0] : 0, (float *)(counts + job->rows), job->found);
}

static int open_difficulty(PyObject *args, Job *job)
{
    PyObject *capsule, *given, *beside, *out;
    if (!PyArg_ParseTuple(args, "OO!OO", &capsule, &PyList_Type, &given, &beside, &out))
        return 0;
    const HeldDifficulty *own = held(capsule, DIFFICULTY);
    Py_ssize_t rows = PyList_Size(given);
    if (own == NULL || open_arrays(&job->arrays, rows + 2) < 0)
        return 0;
    const DifficultyTables *of = &own->tables;
    for (Py_ssize_t row = 0; row < rows; row++)
        if (!open_pieces(&job->arrays, PyList_GetItem(given, row), of->pieces))
            return 0;
    if (beside != Py_None && array_of(&job->arrays, beside, 'f', 1, 0) == NULL)
        return 0;
    Py_buffer *found = array_of(&job->arrays, out, 'f', 1, 1);
    if (found == NULL || !is_shaped(found, rows, 0, 0, 0))
        return 0;
    job->tables = of, job->rows = (size_t)rows, job->found = found->buf, job->compute = compute_difficulty;
    size_t tile = (of->width + 1) * TILE, tiles = (of->questions / TILE + 1) * TILE;
    return has_work(job, (size_t)rows * (sizeof(int32_t *) + sizeof(size_t)) +
                             ((size_t)rows * (2 * of->width + 18) + 2 * tile + tiles) * sizeof(float));
}

static void compute_tower(const Job *job)
{
    const Py_buffer *given = job->arrays.held;
    arithmetic->tower(job->tables, given[0].buf, given[1].buf, given[2].buf, job->ways, job->rows, job->work,
                      given[3].buf, given[4].buf);
}

static int open_tower(PyObject *args, Job *job)
{
    PyObject *capsule, *given[5];
    if (!PyArg_ParseTuple(args, "OOOOOO", &capsule, &given[0], &given[1], &given[2], &given[3], &given[4]))
        return 0;
    const HeldTower *own = held(capsule, TOWER);
    if (own == NULL || open_arrays(&job->arrays, 5) < 0)
        return 0;
    const TowerWeights *of = &own->weights;
    static const char kinds[5] = {'f', 'f', 'q', 'f', 'f'};
    static const int dimensions[5] = {4, 2, 2, 3, 2};
    Py_buffer *views[5];
    for (int at = 0; at < 5; at++)
        if ((views[at] = array_of(&job->arrays, given[at], kinds[at], dimensions[at], at > 2)) == NULL)
            return 0;
    Py_ssize_t ways = views[2]->shape[0], rows = views[2]->shape[1], members = (Py_ssize_t)of->members;
    if (!is_shaped(views[0], rows, (Py_ssize_t)of->parts, members, (Py_ssize_t)of->width + 1) ||
        !is_shaped(views[3], ways > 0 ? ways : 1, members, rows, 0) || /* names are read of the first way */
        !is_shaped(views[1], rows, (Py_ssize_t)of->traits, 0, 0) ||
        !is_shaped(views[4], rows, (Py_ssize_t)of->wide, 0, 0))
        return 0;
    for (Py_ssize_t at = 0; at < ways * rows; at++)
        if ((uint64_t)((int64_t *)views[2]->buf)[at] >= of->known) {
            PyErr_SetString(PyExc_IndexError, "a name that the tower does not know");
            return 0;
        }
    job->tables = of, job->ways = (size_t)ways, job->rows = (size_t)rows, job->compute = compute_tower;
    size_t inputs = of->words + 2 * of->width + of->name + of->traits;
    size_t room = (size_t)rows * (inputs + 2 * of->wide + of->deep + 1) + 2 * of->name;
    return has_work(job, room * sizeof(float));
}

/* Reads a job's name and arguments. */
static int open_named(PyObject *given, Job *job)
{
    static const struct {
        const char *name;
        Opener *open;
    } known[] = {{"bags", open_bags}, {"topics", open_topics}, {"difficulty", open_difficulty}, {"tower", open_tower}};
    const char *name;
    PyObject *args;
    if (!PyTuple_Check(given) || !PyArg_ParseTuple(given, "sO!", &name, &PyTuple_Type, &args))
        return PyErr_Occurred() ? 0 : (PyErr_SetString(PyExc_TypeError, "a job is its name and its arguments"), 0);
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (strcmp(name, known[at].name) == 0)
            return known[at].open(args, job);
    PyErr_Format(PyExc_ValueError, "no job is called %s", name);
    return 0;
}

/* Does some jobs one after the other; none, where one does not fit. */
static PyObject *together(PyObject *module, PyObject *given)
{
    enum { MOST = 8 };
    Job jobs[MOST] = {{{0}}};
    Py_ssize_t count = PyList_Check(given) ? PyList_Size(given) : -1, open = 0;
    (void)module;
    if (count < 0 || count > MOST) {
        PyErr_Format(PyExc_TypeError, "jobs stand in a list of at most %d", MOST);
        return NULL;
    }
    int are_open = 1;
    while (are_open && open < count) {
        are_open = open_named(PyList_GetItem(given, open), &jobs[open]);
        open++;
    }
    if (are_open) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t at = 0; at < count; at++)
            jobs[at].compute(&jobs[at]);
        Py_END_ALLOW_THREADS
    }
    while (open > 0)
        close_job(&jobs[--open]);
    return are_open ? Py_NewRef(Py_None) : NULL;
}

/* --- what takes microseconds ----------------------------------------------------------------------------------------- */

/* Lets other threads run where there are more rows than take microseconds; `go_on` needs what it gives. */
static PyThreadState *let_others_run(Py_ssize_t rows)
{
    enum { FEW = 32 };
    return rows > FEW ? PyEval_SaveThread() : NULL;
}

static void go_on(PyThreadState *own)
{
    if (own != NULL)
        PyEval_RestoreThread(own);
}

static PyObject *distances(PyObject *module, PyObject *args)
{
    PyObject *given[4], *result = NULL;
    Arrays arrays;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOO", &given[0], &given[1], &given[2], &given[3]) || open_arrays(&arrays, 4) < 0)
        return NULL;
    Py_buffer *views[4];
    int is_whole = 1;
    for (int at = 0; at < 4 && is_whole; at++)
        is_whole = (views[at] = array_of(&arrays, given[at], 'f', at < 3 ? 2 : 1, at == 3)) != NULL;
    Py_ssize_t rows = is_whole ? views[0]->shape[0] : 0, width = is_whole ? views[0]->shape[1] : 0;
    is_whole = is_whole && is_shaped(views[1], width, width, 0, 0) &&
               is_shaped(views[2], views[2]->shape[0], width, 0, 0) && is_shaped(views[3], rows, 0, 0, 0);
    float *work = is_whole ? PyMem_Malloc((size_t)(rows + 1) * (size_t)width * sizeof *work + 1) : NULL;
    if (work != NULL) {
        PyThreadState *own_thread = let_others_run(rows);
        arithmetic->distances(views[0]->buf, views[1]->buf, views[2]->buf, (size_t)rows, (size_t)width,
                              (size_t)views[2]->shape[0], work, views[3]->buf);
        go_on(own_thread);
        result = Py_NewRef(Py_None);
    } else if (is_whole)
        PyErr_NoMemory();
    PyMem_Free(work);
    close_arrays(&arrays);
    return result;
}

static PyObject *trees(PyObject *module, PyObject *args)
{
    PyObject *capsule, *rows, *out, *result = NULL;
    Arrays arrays;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &rows, &out))
        return NULL;
    const HeldTrees *own = held(capsule, TREES);
    if (own == NULL || open_arrays(&arrays, 2) < 0)
        return NULL;
    Py_buffer *given = array_of(&arrays, rows, 'f', 2, 0);
    Py_buffer *found = given == NULL ? NULL : array_of(&arrays, out, 'd', 1, 1);
    if (found != NULL && is_shaped(given, found->shape[0], (Py_ssize_t)own->width, 0, 0)) {
        PyThreadState *own_thread = let_others_run(given->shape[0]);
        memset(found->buf, 0, (size_t)found->len);
        arithmetic->trees(own->nodes, own->trees, own->size, given->buf, (size_t)given->shape[0], own->width, found->buf);
        go_on(own_thread);
        result = Py_NewRef(Py_None);
    }
    close_arrays(&arrays);
    return result;
}

static PyMethodDef methods[] = {
    {"bag_tables", make_bag_tables, METH_VARARGS, NULL},
    {"beginnings", beginnings, METH_VARARGS, NULL},
    {"compared", compared, METH_VARARGS, NULL},
    {"cut", cut, METH_VARARGS, NULL},
    {"difficulty_tables", make_difficulty_tables, METH_VARARGS, NULL},
    {"digits", digits, METH_O, NULL},
    {"distances", distances, METH_VARARGS, NULL},
    {"distinct", distinct_pieces, METH_O, NULL},
    {"gelu", gelu, METH_VARARGS, NULL},
    {"grams", grams, METH_VARARGS, NULL},
    {"has_shape", (PyCFunction)(void (*)(void))has_shape, METH_FASTCALL, NULL},
    {"hold_any", (PyCFunction)(void (*)(void))hold_any, METH_FASTCALL, NULL},
    {"index", make_index, METH_O, NULL},
    {"needles", make_needles, METH_VARARGS, NULL},
    {"numbers", numbers, METH_O, NULL},
    {"quantized_layer", make_quantized_layer, METH_VARARGS, NULL},
    {"quantized_linear", quantized_linear, METH_VARARGS, NULL},
    {"piece_tables", make_piece_tables, METH_VARARGS, NULL},
    {"rarest", rarest, METH_VARARGS, NULL},
    {"relevance", relevance, METH_VARARGS, NULL},
    {"shape", make_shape, METH_VARARGS, NULL},
    {"together", together, METH_O, NULL},
    {"topic_tables", make_topic_tables, METH_VARARGS, NULL},
    {"tower_weights", make_tower_weights, METH_VARARGS, NULL},
    {"tree_tables", make_trees, METH_VARARGS, NULL},
    {"trees", trees, METH_VARARGS, NULL},
    {"vocabulary", make_vocabulary, METH_VARARGS, NULL},
    {"word_counts", word_counts, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_compiled", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__compiled(void)
{
    PyObject *module = PyModule_Create(&definition);
    arithmetic = chosen_arithmetic();
    if (module != NULL &&
        (PyModule_AddStringConstant(module, "ARITHMETIC", arithmetic == &narrow_arithmetic ? "plain" : "avx2") < 0 ||
         PyModule_AddStringConstant(module, "SOURCES", SOURCES) < 0))
        Py_CLEAR(module);
    return module;
}

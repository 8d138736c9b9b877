/* Hashed n-grams, as `calibrator/features/ngrams.py` has them. */
#include "tables.h"

#include <stdlib.h>
#include <string.h>

enum { SPACES = 6, LONGEST = 5, MOST_CHARACTERS = 451 * 3, MOST_SEQUENCE = 1536 };

typedef struct {
    int32_t numbers[MOST_SEQUENCE];
    Py_ssize_t count;
} Sequence;

static uint64_t mixed(uint64_t x)
{
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDu;
    x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53u;
    return x ^ (x >> 33);
}

/* The n-grams of a sequence, of the lengths whose bits are set, hashed into the buckets of a space; gives where the next
   are written. Their order does not matter. */
static inline int32_t *hashed(const Sequence *of, unsigned lengths, int space, int32_t buckets, int32_t *to)
{
    uint64_t salts[LONGEST + 1];
    for (int n = 1; lengths >> n; n++)
        salts[n] = ((uint64_t)(space + 1) * 7919u + (uint64_t)n) * 0x9E3779B97F4A7C15u;
    for (Py_ssize_t at = 0; at < of->count; at++) {
        uint64_t running = 0;
        for (int n = 1; lengths >> n && at + n <= of->count; n++) {
            running = running * 1000003u + (uint64_t)(uint32_t)of->numbers[at + n - 1] + 1;
            if (lengths >> n & 1)
                *to++ = space * buckets + (int32_t)(mixed(running + salts[n]) & (uint64_t)(buckets - 1));
        }
    }
    return to;
}

/* Of word pieces ones and twos, of the ends threes too, of characters threes and fives; each loop has its lengths at
   hand when it is compiled. */
static int32_t *hashed_of(const Sequence *of, int space, int32_t buckets, int32_t *to)
{
    if (space < 2)
        return hashed(of, 1 << 1 | 1 << 2, space, buckets, to);
    if (space < 4)
        return hashed(of, 1 << 1 | 1 << 2 | 1 << 3, space, buckets, to);
    return hashed(of, 1 << 3 | 1 << LONGEST, space, buckets, to);
}

/* Sorts numbers below 2**22 by two passes over 11 bits each. */
static void sorted(int32_t *numbers, size_t count, int32_t *work)
{
    enum { BITS = 11, DIGITS = 1 << BITS };
    uint32_t starts[2][DIGITS] = {{0}};
    for (size_t at = 0; at < count; at++) {
        starts[0][numbers[at] & (DIGITS - 1)]++;
        starts[1][numbers[at] >> BITS]++;
    }
    for (int pass = 0; pass < 2; pass++) {
        uint32_t sum = 0;
        for (int digit = 0; digit < DIGITS; digit++) {
            uint32_t own = starts[pass][digit];
            starts[pass][digit] = sum;
            sum += own;
        }
    }
    for (size_t at = 0; at < count; at++)
        work[starts[0][numbers[at] & (DIGITS - 1)]++] = numbers[at];
    for (size_t at = 0; at < count; at++)
        numbers[starts[1][work[at] >> BITS]++] = work[at];
}

/* All n-grams of the sequences, each once: the numbers of the first spaces first. `starts` says where each space's
   begin; gives how many there are. `keys` and `found` have room for all. */
static size_t distinct_grams(const Sequence *of, int32_t buckets, int32_t *keys, int32_t *found, uint32_t *starts)
{
    int32_t *end = keys;
    size_t count = 0;
    int space = 0;
    for (; space < SPACES; space++)
        end = hashed_of(&of[space], space, buckets, end);
    sorted(keys, (size_t)(end - keys), found);
    space = 0;
    for (const int32_t *key = keys; key < end; key++) {
        if (key > keys && *key == key[-1])
            continue;
        while (*key >= space * buckets)
            starts[space++] = (uint32_t)count;
        found[count++] = *key & (buckets - 1);
    }
    while (space <= SPACES)
        starts[space++] = (uint32_t)count;
    return count;
}

static int characters(PyObject *text, Sequence *found)
{
    Py_ssize_t size = PyUnicode_GetLength(text);
    Py_UCS4 points[MOST_CHARACTERS + 1];
    if (size < 0)
        return 0;
    if (size > MOST_CHARACTERS) {
        PyErr_SetString(PyExc_ValueError, "a text of which a part alone is read is too long");
        return 0;
    }
    if (PyUnicode_AsUCS4(text, points, MOST_CHARACTERS + 1, 1) == NULL)
        return 0;
    for (Py_ssize_t at = 0; at < size; at++)
        found->numbers[at] = (int32_t)points[at];
    found->count = size;
    return 1;
}

static void part_of(const Sequence *of, Py_ssize_t start, Py_ssize_t count, Sequence *found)
{
    found->count = count;
    memcpy(found->numbers, of->numbers + start, (size_t)count * sizeof *found->numbers);
}

/* Reads the texts and pieces of both sides; 0 with an exception where they are of another kind. */
static int read_sides(PyObject *const *texts, PyObject *const *pieces, const int *ends, const int *most, Sequence *of)
{
    for (int side = 0; side < 2; side++) {
        of[side].count = numbers_of(pieces[side], INT32_MAX, ends[2 * side], ends[2 * side + 1], of[side].numbers);
        if (of[side].count < 0 || !characters(texts[side], &of[4 + side]))
            return 0;
    }
    Py_ssize_t said = of[1].count, last = said < most[1] ? said : most[1], first = said < most[0] ? said : most[0];
    part_of(&of[1], said - last, last, &of[2]);
    part_of(&of[1], 0, first, &of[3]);
    return 1;
}

static int are_sizes(int buckets, const int *ends, const int *most)
{
    int fit = buckets >= 1 && buckets <= 1 << 19 && !(buckets & (buckets - 1)) && most[0] >= 0 && most[1] >= 0;
    for (int side = 0; side < 2; side++)
        fit = fit && ends[2 * side] >= 0 && ends[2 * side] <= MOST_SEQUENCE / 2 && ends[2 * side + 1] >= 0 &&
              ends[2 * side + 1] <= MOST_SEQUENCE / 2;
    if (!fit)
        PyErr_SetString(PyExc_ValueError, "n-grams of other sizes");
    return fit;
}

PyObject *grams(PyObject *module, PyObject *args)
{
    PyObject *texts[2], *pieces[2], *found = NULL;
    int buckets, ends[4], most[2];
    uint32_t starts[SPACES + 1];
    (void)module;
    if (!PyArg_ParseTuple(args, "UUOOi(iiii)(ii)", &texts[0], &texts[1], &pieces[0], &pieces[1], &buckets, &ends[0],
                          &ends[1], &ends[2], &ends[3], &most[0], &most[1]) ||
        !are_sizes(buckets, ends, most))
        return NULL;
    Sequence *of = PyMem_Malloc(SPACES * sizeof *of);
    if (of == NULL)
        return PyErr_NoMemory();
    if (read_sides(texts, pieces, ends, most, of)) {
        size_t room = 1, count;
        for (int space = 0; space < SPACES; space++)
            room += 3 * (size_t)of[space].count;
        int32_t *keys = PyMem_Malloc(2 * room * sizeof *keys);
        if (keys == NULL)
            PyErr_NoMemory();
        else {
            count = distinct_grams(of, buckets, keys, keys + room, starts);
            PyObject *bytes =
                PyByteArray_FromStringAndSize((const char *)(keys + room), (Py_ssize_t)(count * sizeof *keys));
            if (bytes != NULL)
                found = Py_BuildValue("(N(IIIIII))", bytes, starts[0], starts[1], starts[2], starts[4], starts[5],
                                      starts[6]);
        }
        PyMem_Free(keys);
    }
    PyMem_Free(of);
    return found;
}

PyObject *distinct_pieces(PyObject *module, PyObject *pieces)
{
    (void)module;
    Py_ssize_t size = PyObject_Size(pieces);
    if (size < 0)
        return NULL;
    int32_t *found = PyMem_Malloc((size_t)size * sizeof *found + 1), last = 0;
    uint64_t *marks = NULL;
    PyObject *bytes = NULL;
    if (found == NULL)
        return PyErr_NoMemory();
    if ((size = numbers_of(pieces, INT32_MAX, size, 0, found)) >= 0) {
        for (Py_ssize_t at = 0; at < size; at++)
            last = found[at] > last ? found[at] : last;
        if ((marks = PyMem_Calloc((size_t)last / 64 + 1, sizeof *marks)) == NULL)
            PyErr_NoMemory();
    }
    if (marks != NULL) {
        size_t count = distinct_of(found, (size_t)size, marks, found);
        bytes = PyByteArray_FromStringAndSize((const char *)found, (Py_ssize_t)(count * sizeof *found));
    }
    PyMem_Free(marks);
    PyMem_Free(found);
    return bytes;
}

/* Words cut into pieces, as BERT's tokenizer does it with words of ASCII letters and digits, and what the pieces of two
   texts have in common. */
#include "tables.h"

#include <string.h>

enum { MOST_LETTERS = 100, LONGEST = 64, EMPTY = -1 };

typedef struct {
    uint32_t hash;
    uint32_t start; /* of its letters in `letters` */
    int32_t id;     /* EMPTY: none is here */
    uint8_t length;
    uint8_t is_more; /* whether it goes on with a word */
} Entry;

typedef struct {
    Entry *entries;
    char *letters;
    size_t mask, longest;
    int32_t unknown;
} Vocabulary;

static uint32_t begun(int is_more)
{
    return is_more ? 0x9E3779B9u : 0x811C9DC5u;
}

static uint32_t further(uint32_t hash, char letter)
{
    return (hash ^ (uint8_t)letter) * 0x01000193u;
}

static Entry *place_of(const Vocabulary *of, uint32_t hash, const char *letters, size_t length, int is_more)
{
    size_t at = (hash ^ (hash >> 15)) & of->mask;
    for (;; at = (at + 1) & of->mask) {
        Entry *own = &of->entries[at];
        if (own->id == EMPTY || (own->hash == hash && own->length == length && own->is_more == is_more &&
                                 memcmp(of->letters + own->start, letters, length) == 0))
            return own;
    }
}

static void free_vocabulary(Vocabulary *own)
{
    PyMem_Free(own->entries);
    PyMem_Free(own->letters);
    PyMem_Free(own);
}

static void let_go(PyObject *capsule)
{
    Vocabulary *own = PyCapsule_GetPointer(capsule, VOCABULARY);
    if (own != NULL)
        free_vocabulary(own);
}

/* Adds a piece; `##` in front marks one that goes on with a word. What is too long for any word is left out. */
static int add_piece(Vocabulary *own, PyObject *name, PyObject *number, size_t *used)
{
    Py_ssize_t length;
    const char *letters = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &length) : NULL;
    long id = PyLong_Check(number) ? PyLong_AsLong(number) : -1;
    if (letters == NULL || id < 0 || id > INT32_MAX) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a vocabulary is a dict of names and numbers");
        return -1;
    }
    int is_more = length > 2 && letters[0] == '#' && letters[1] == '#';
    letters += is_more ? 2 : 0;
    length -= is_more ? 2 : 0;
    if (length == 0 || length > LONGEST)
        return 0;
    uint32_t hash = begun(is_more);
    for (Py_ssize_t at = 0; at < length; at++)
        hash = further(hash, letters[at]);
    Entry *entry = place_of(own, hash, letters, (size_t)length, is_more);
    memcpy(own->letters + *used, letters, (size_t)length);
    *entry = (Entry){hash, (uint32_t)*used, (int32_t)id, (uint8_t)length, (uint8_t)is_more};
    *used += (size_t)length;
    own->longest = (size_t)length > own->longest ? (size_t)length : own->longest;
    return 0;
}

PyObject *make_vocabulary(PyObject *module, PyObject *args)
{
    PyObject *pieces, *name, *number, *capsule;
    int unknown;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!i", &PyDict_Type, &pieces, &unknown))
        return NULL;
    size_t count = (size_t)PyDict_Size(pieces), slots = 16, used = 0;
    while (slots < 2 * count)
        slots *= 2;
    Vocabulary *own = PyMem_Calloc(1, sizeof *own);
    if (own == NULL)
        return PyErr_NoMemory();
    own->entries = PyMem_Malloc(slots * sizeof *own->entries);
    own->letters = PyMem_Malloc(count * LONGEST + 1);
    own->mask = slots - 1;
    own->unknown = unknown;
    if (own->entries == NULL || own->letters == NULL) {
        free_vocabulary(own);
        return PyErr_NoMemory();
    }
    for (size_t at = 0; at < slots; at++)
        own->entries[at].id = EMPTY;
    Py_ssize_t at = 0;
    while (PyDict_Next(pieces, &at, &name, &number))
        if (add_piece(own, name, number, &used) < 0) {
            free_vocabulary(own);
            return NULL;
        }
    char *letters = PyMem_Realloc(own->letters, used + 1);
    own->letters = letters ? letters : own->letters;
    if ((capsule = PyCapsule_New(own, VOCABULARY, let_go)) == NULL)
        free_vocabulary(own);
    return capsule;
}

/* What a text comes to, so far. */
typedef struct {
    int32_t *ids;
    size_t count, room;
} Cut;

/* Makes room for some more; an exception where there is none. */
static int has_room(Cut *found, size_t more)
{
    if (found->count + more <= found->room)
        return 1;
    size_t room = 2 * (found->count + more);
    int32_t *ids = PyMem_Realloc(found->ids, room * sizeof *ids);
    if (ids == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    found->ids = ids;
    found->room = room;
    return 1;
}

/* Cuts a word of lower letters and digits: each piece is the longest that there is. */
static int cut_word(const Vocabulary *of, const char *word, size_t length, Cut *found)
{
    size_t start = 0, known = found->count;
    if (!has_room(found, length))
        return 0;
    while (start < length) {
        uint32_t hashes[LONGEST + 1];
        size_t most = length - start < of->longest ? length - start : of->longest;
        hashes[0] = begun(start > 0);
        for (size_t at = 0; at < most; at++)
            hashes[at + 1] = further(hashes[at], word[start + at]);
        const Entry *entry = NULL;
        for (size_t size = most; size > 0; size--) {
            entry = place_of(of, hashes[size], word + start, size, start > 0);
            if (entry->id != EMPTY)
                break;
            entry = NULL;
        }
        if (entry == NULL) {
            found->count = known;
            found->ids[found->count++] = of->unknown;
            break;
        }
        found->ids[found->count++] = entry->id;
        start += entry->length;
    }
    return 1;
}

/* Cuts a word by asking Python. */
static int ask(PyObject *others, const char *word, Py_ssize_t length, Cut *found)
{
    PyObject *text = PyUnicode_FromStringAndSize(word, length);
    PyObject *ids = text == NULL ? NULL : PyObject_GetItem(others, text);
    Py_ssize_t count = ids == NULL ? -1 : PyObject_Size(ids);
    if (count >= 0 && has_room(found, (size_t)count))
        count = numbers_of(ids, INT32_MAX, count, 0, found->ids + found->count);
    else
        count = -1;
    found->count += count > 0 ? (size_t)count : 0;
    Py_XDECREF(text);
    Py_XDECREF(ids);
    return count >= 0;
}

enum { SPACE, SIGN, LETTER, OTHER };

static int kind_of(unsigned char letter)
{
    if (letter == ' ' || letter == '\t' || letter == '\n' || letter == '\r')
        return SPACE;
    if ((letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))
        return LETTER;
    return letter > ' ' && letter < 0x7f ? SIGN : OTHER;
}

PyObject *cut(PyObject *module, PyObject *args)
{
    PyObject *capsule, *others;
    const char *text;
    Py_ssize_t size;
    (void)module;
    if (!PyArg_ParseTuple(args, "Os#O", &capsule, &text, &size, &others))
        return NULL;
    const Vocabulary *of = PyCapsule_GetPointer(capsule, VOCABULARY);
    Cut found = {NULL, 0, 0};
    int is_whole = of != NULL && has_room(&found, (size_t)size / 2);
    Py_ssize_t at = 0;
    while (is_whole && at < size) {
        char lower[MOST_LETTERS];
        Py_ssize_t start = at;
        int kind = kind_of((unsigned char)text[at++]), is_plain = kind == LETTER;
        if (kind == SPACE)
            continue;
        if (kind == SIGN)
            is_whole = cut_word(of, text + start, 1, &found);
        else {
            for (; at < size && (kind = kind_of((unsigned char)text[at])) >= LETTER; at++)
                is_plain = is_plain && kind == LETTER;
            if (is_plain && at - start <= MOST_LETTERS) {
                for (Py_ssize_t place = start; place < at; place++)
                    lower[place - start] = (char)(text[place] >= 'A' && text[place] <= 'Z' ? text[place] + 32 : text[place]);
                is_whole = cut_word(of, lower, (size_t)(at - start), &found);
            } else
                is_whole = ask(others, text + start, at - start, &found);
        }
    }
    PyObject *bytes =
        is_whole ? PyBytes_FromStringAndSize((const char *)found.ids, (Py_ssize_t)(found.count * sizeof *found.ids)) : NULL;
    PyMem_Free(found.ids);
    return bytes;
}

/* --- what two texts have in common ------------------------------------------------------------------------------------- */

/* The pieces of a text that are looked at, `kept`, and the distinct ones of them; 0 with an exception for others. */
static int open_side(PyObject *given, int32_t limit, int32_t *kept, int32_t *ids, Side *found)
{
    Py_ssize_t count = numbers_of(given, limit, MOST_PIECES / 2, MOST_PIECES / 2, kept);
    if (count < 0)
        return 0;
    uint64_t marks[(UINT16_MAX + 1) / 64] = {0};
    *found = (Side){kept, (size_t)count, ids, distinct_of(kept, (size_t)count, marks, ids)};
    return 1;
}

static PyObject *list_of(const double *numbers, Py_ssize_t count)
{
    PyObject *found = PyList_New(count);
    for (Py_ssize_t at = 0; found != NULL && at < count; at++) {
        PyObject *number = PyFloat_FromDouble(numbers[at]);
        if (number == NULL || PyList_SetItem(found, at, number) < 0)
            Py_CLEAR(found);
    }
    return found;
}

/* Whether a threshold is so near to a cosine that rounding may pass it; 0 and -1 stand for none. */
static int is_near(const PieceTables *of, size_t place, double cosine)
{
    const double *thresholds = of->thresholds + place * of->each;
    size_t low = 0, high = of->each;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (thresholds[middle] < cosine - of->rounding)
            low = middle + 1;
        else
            high = middle;
    }
    return cosine != 0 && cosine != -1 && low < of->each && thresholds[low] <= cosine + of->rounding;
}

PyObject *relevance(PyObject *module, PyObject *args)
{
    PyObject *capsule, *given[2];
    int32_t kept[2][MOST_PIECES], ids[2][MOST_PIECES];
    Side sides[2];
    double found[SHARED_TRAITS];
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &given[0], &given[1]))
        return NULL;
    const HeldPieces *own = held(capsule, PIECES);
    if (own == NULL)
        return NULL;
    for (int side = 0; side < 2; side++)
        if (!open_side(given[side], own->pieces, kept[side], ids[side], &sides[side]))
            return NULL;
    float *work = PyMem_Malloc((3 * STRONGEST + 6) * own->tables.width * sizeof *work);
    if (work == NULL)
        return PyErr_NoMemory();
    arithmetic->relevance(&own->tables, &sides[0], &sides[1], work, found);
    PyMem_Free(work);
    unsigned long near = 0;
    for (size_t at = 0; at < COSINES; at++)
        near |= (unsigned long)is_near(&own->tables, at, found[SHARED_TRAITS - 1 - COSINES + at]) << at;
    return Py_BuildValue("(Nk)", list_of(found, SHARED_TRAITS), near);
}

PyObject *rarest(PyObject *module, PyObject *args)
{
    PyObject *capsule, *given;
    int32_t kept[MOST_PIECES], ids[MOST_PIECES], found[STRONGEST];
    Side side;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &given))
        return NULL;
    const HeldPieces *own = held(capsule, PIECES);
    if (own == NULL || !open_side(given, own->pieces, kept, ids, &side))
        return NULL;
    float *vectors = PyMem_Malloc(STRONGEST * own->tables.width * sizeof *vectors);
    if (vectors == NULL)
        return PyErr_NoMemory();
    size_t count = arithmetic->rarest_pieces(&own->tables, side.ids, side.count, found, vectors);
    PyObject *result = Py_BuildValue(
        "(NN)", PyByteArray_FromStringAndSize((const char *)found, (Py_ssize_t)(count * sizeof *found)),
        PyByteArray_FromStringAndSize((const char *)vectors, (Py_ssize_t)(count * own->tables.width * sizeof *vectors)));
    PyMem_Free(vectors);
    return result;
}

PyObject *compared(PyObject *module, PyObject *args)
{
    PyObject *capsule, *given[3], *result = NULL;
    Arrays arrays;
    double found[5];
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOO", &capsule, &given[0], &given[1], &given[2]))
        return NULL;
    const HeldPieces *own = held(capsule, PIECES);
    if (own == NULL || open_arrays(&arrays, 3) < 0)
        return NULL;
    int32_t ids[2][STRONGEST];
    Py_ssize_t counts[2] = {-1, -1};
    for (int side = 0; side < 2; side++)
        if ((counts[side] = numbers_of(given[side], own->pieces, STRONGEST, 0, ids[side])) < 0)
            break;
    Py_buffer *alike = counts[1] < 0 ? NULL : array_of(&arrays, given[2], 'f', 2, 0);
    if (alike == NULL)
        ;
    else if (!counts[0] || !counts[1] || alike->shape[0] != counts[0] || alike->shape[1] != counts[1])
        PyErr_SetString(PyExc_ValueError, "cosines of other pieces");
    else {
        arithmetic->compared(&own->tables, ids[0], (size_t)counts[0], ids[1], (size_t)counts[1], alike->buf,
                             (size_t)counts[1], found);
        result = list_of(found, 5);
    }
    close_arrays(&arrays);
    return result;
}

/* Words cut into pieces, as BERT's tokenizer does it with words of ASCII letters and digits. */
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

/* What ASCII texts hold: words as Python's `split` or a pattern cuts them, parts of them, numbers. */
#include "tables.h"

#include <string.h>

enum { MOST_CHARACTERS = 2 * (UINT16_MAX - 1), LONGEST_BEGINNING = 6, SHORTEST_RUN = 3 };

typedef struct {
    const char *text;
    size_t length;
} Text;

typedef struct {
    const char *text;
    size_t length;
    uint64_t hash;
} Word;

typedef struct {
    Word *words;
    size_t count;
    uint16_t *places; /* by their hashes: one more than where a word stands in `words`, 0 for none */
    size_t size;      /* of `places`, a power of two */
} Words;

typedef const unsigned char Kind[256]; /* 1 for signs that are of it */

static Kind DIGITS = {['0' ... '9'] = 1};
static Kind OF_WORDS = {['a' ... 'z'] = 1, ['A' ... 'Z'] = 1, ['0' ... '9'] = 1, ['_'] = 1}; /* `\w` */
static Kind SMALL = {['a' ... 'z'] = 1};
static Kind DARK = {['\0' ... '\b'] = 1, [0x0e ... 0x1b] = 1, ['!' ... 0x7f] = 1}; /* no white space */

static int is_of(Kind kind, char sign)
{
    return kind[(unsigned char)sign];
}

/* An ASCII text; {NULL, 0} with an exception for any other. */
static Text ascii_of(PyObject *text)
{
    Py_ssize_t size;
    const char *own = PyUnicode_AsUTF8AndSize(text, &size);
    if (own == NULL)
        return (Text){NULL, 0};
    unsigned char all = 0;
    for (Py_ssize_t at = 0; at < size; at++)
        all |= (unsigned char)own[at];
    if (all < 0x80 && size <= MOST_CHARACTERS)
        return (Text){own, (size_t)size};
    PyErr_SetString(PyExc_ValueError, "a text that is long or not ASCII alone");
    return (Text){NULL, 0};
}

/* Where runs of signs of a kind begin and end, one after the other, in `edges`, which has room for one more than the text
   has signs; gives how many runs there are. */
static size_t runs_of(Text text, Kind kind, uint32_t *edges)
{
    size_t count = 0;
    uint64_t last = 0; /* whether the sign before is of the kind */
    for (size_t start = 0; start <= text.length; start += 64) {
        size_t some = text.length - start < 64 ? text.length - start : 64;
        uint64_t bits = 0;
        for (size_t at = 0; at < some; at++)
            bits |= (uint64_t)kind[(unsigned char)text.text[start + at]] << at;
        uint64_t changes = bits ^ (bits << 1 | last);
        last = bits >> 63;
        for (; changes; changes &= changes - 1)
            edges[count++] = (uint32_t)(start + (size_t)__builtin_ctzll(changes));
    }
    return count / 2;
}

/* At most eight signs of a text from a place on, as a number. */
static uint64_t signs_of(Text text, size_t at, size_t count)
{
    uint64_t signs = 0;
    memcpy(&signs, text.text + at, at + 8 <= text.length || count > 8 ? 8 : count);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    signs = __builtin_bswap64(signs);
#endif
    return count < 8 ? signs & (((uint64_t)1 << 8 * count) - 1) : signs;
}

static Word word_at(Text text, size_t at, size_t length)
{
    uint64_t hash = length;
    for (size_t start = 0; start < length; start += 8) {
        hash = (hash ^ signs_of(text, at + start, length - start)) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    return (Word){text.text + at, length, hash};
}

/* Where in `places` a word stands, or would stand. */
static size_t place_of(const Words *of, const Word *word)
{
    size_t place = (size_t)word->hash & (of->size - 1);
    while (of->places[place]) {
        const Word *own = &of->words[of->places[place] - 1];
        if (own->hash == word->hash && own->length == word->length &&
            (word->length <= 8 || memcmp(own->text, word->text, word->length) == 0)) /* eight signs tell by the hash */
            break;
        place = (place + 1) & (of->size - 1);
    }
    return place;
}

/* Remembers the words from one on; gives how many of them are distinct. */
static size_t remember(Words *of, size_t from)
{
    size_t distinct = 0;
    memset(of->places, 0, of->size * sizeof *of->places);
    for (size_t at = from; at < of->count; at++) {
        size_t place = place_of(of, &of->words[at]);
        distinct += !of->places[place];
        of->places[place] = (uint16_t)(at + 1);
    }
    return distinct;
}

static void close_words(Words *of)
{
    PyMem_Free(of->words);
    PyMem_Free(of->places);
}

/* The words of a text, runs of signs of a kind, none remembered; 0 where memory lacks. */
static int open_words(Text text, Kind kind, Words *found)
{
    uint32_t *edges = PyMem_Malloc((text.length + 1) * sizeof *edges);
    *found = (Words){NULL, edges ? runs_of(text, kind, edges) : 0, NULL, 16};
    while (found->size < 2 * found->count)
        found->size *= 2;
    found->words = PyMem_Malloc(found->count * sizeof *found->words + 1);
    found->places = PyMem_Malloc(found->size * sizeof *found->places);
    int is_open = edges != NULL && found->words != NULL && found->places != NULL;
    for (size_t at = 0; is_open && at < found->count; at++)
        found->words[at] = word_at(text, edges[2 * at], edges[2 * at + 1] - edges[2 * at]);
    PyMem_Free(edges);
    return is_open;
}

PyObject *word_counts(PyObject *module, PyObject *args)
{
    PyObject *given[3], *found = NULL;
    Py_ssize_t last;
    Text texts[3];
    Words words[3] = {{NULL, 0, NULL, 0}, {NULL, 0, NULL, 0}, {NULL, 0, NULL, 0}};
    (void)module;
    if (!PyArg_ParseTuple(args, "UUUn", &given[0], &given[1], &given[2], &last))
        return NULL;
    for (int at = 0; at < 3; at++)
        if ((texts[at] = ascii_of(given[at])).text == NULL)
            return NULL;
    Words *asked = &words[0], *said = &words[1], *as_written = &words[2];
    if (open_words(texts[0], DARK, asked) && open_words(texts[1], DARK, said) &&
        open_words(texts[2], DARK, as_written)) {
        size_t repeated = 0, from = last < 0 || (size_t)last > said->count ? 0 : said->count - (size_t)last;
        remember(asked, 0);
        for (size_t at = 0; at < said->count; at++)
            repeated += asked->places[place_of(asked, &said->words[at])] != 0;
        found = Py_BuildValue("nnnnn", (Py_ssize_t)asked->count, (Py_ssize_t)said->count, (Py_ssize_t)repeated,
                              (Py_ssize_t)remember(as_written, 0), (Py_ssize_t)remember(said, from));
    } else
        PyErr_NoMemory();
    for (int at = 0; at < 3; at++)
        close_words(&words[at]);
    return found;
}

/* Where a beginning stands in a table, or would stand. */
static size_t beginning_at(const uint64_t *table, size_t size, uint64_t beginning)
{
    size_t place = (size_t)(beginning * 0x9E3779B97F4A7C15u >> 32) & (size - 1);
    while (table[place] && table[place] != beginning)
        place = (place + 1) & (size - 1);
    return place;
}

/* The beginnings of a text's runs of small letters, each once: as numbers, in a table that `size`, a power of two, is
   more than twice as long as there are any. Gives how many there are. */
static size_t beginnings_of(Text text, uint32_t *edges, uint64_t *table, size_t size)
{
    size_t count = 0, runs = runs_of(text, SMALL, edges);
    memset(table, 0, size * sizeof *table);
    for (size_t at = 0; at < runs; at++) {
        size_t start = edges[2 * at], length = edges[2 * at + 1] - start;
        if (length < SHORTEST_RUN)
            continue;
        uint64_t beginning = signs_of(text, start, length < LONGEST_BEGINNING ? length : LONGEST_BEGINNING);
        size_t place = beginning_at(table, size, beginning);
        count += !table[place];
        table[place] = beginning;
    }
    return count;
}

PyObject *beginnings(PyObject *module, PyObject *args)
{
    PyObject *given[2];
    Text texts[2];
    uint64_t *tables[2];
    size_t sizes[2], counts[2], both = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "UU", &given[0], &given[1]))
        return NULL;
    for (int at = 0; at < 2; at++) {
        if ((texts[at] = ascii_of(given[at])).text == NULL)
            return NULL;
        for (sizes[at] = 16; sizes[at] < texts[at].length / 2 + 2;)
            sizes[at] *= 2; /* a run and what ends it take four characters */
    }
    size_t longest = texts[0].length > texts[1].length ? texts[0].length : texts[1].length;
    uint64_t *memory = PyMem_Malloc((sizes[0] + sizes[1] + longest / 2 + 1) * sizeof *memory);
    if (memory == NULL)
        return PyErr_NoMemory();
    tables[0] = memory;
    tables[1] = memory + sizes[0];
    uint32_t *edges = (uint32_t *)(tables[1] + sizes[1]);
    for (int at = 0; at < 2; at++)
        counts[at] = beginnings_of(texts[at], edges, tables[at], sizes[at]);
    for (size_t at = 0; at < sizes[1]; at++)
        both += tables[1][at] && tables[0][beginning_at(tables[0], sizes[0], tables[1][at])];
    PyMem_Free(memory);
    return Py_BuildValue("nnn", (Py_ssize_t)counts[0], (Py_ssize_t)counts[1], (Py_ssize_t)both);
}

/* --- one of several words and parts ------------------------------------------------------------------------------------ */

#define INDEX "calibrator.kernel.index"
#define NEEDLES "calibrator.kernel.needles"

typedef struct {
    PyObject *held; /* whose signs the words are */
    Text text;
    Words words;
    uint64_t pairs[128 * 128 / 64]; /* of signs that follow each other, a bit each */
} Index;

typedef struct {
    PyObject *held; /* a tuple of the words and one of the parts, whose signs these are */
    size_t words, count;
    Word needles[]; /* words, then parts */
} Needles;

static void free_index(PyObject *capsule)
{
    Index *own = PyCapsule_GetPointer(capsule, INDEX);
    close_words(&own->words);
    Py_DECREF(own->held);
    PyMem_Free(own);
}

static void free_needles(PyObject *capsule)
{
    Needles *own = PyCapsule_GetPointer(capsule, NEEDLES);
    Py_DECREF(own->held);
    PyMem_Free(own);
}

static size_t pair_at(const char *signs)
{
    return (size_t)(unsigned char)signs[0] << 7 | (size_t)(unsigned char)signs[1];
}

PyObject *make_index(PyObject *module, PyObject *text)
{
    (void)module;
    Text own = ascii_of(text);
    if (own.text == NULL)
        return NULL;
    Index *found = PyMem_Calloc(1, sizeof *found);
    if (found == NULL)
        return PyErr_NoMemory();
    found->held = Py_NewRef(text);
    found->text = own;
    PyObject *capsule = NULL;
    if (open_words(own, OF_WORDS, &found->words)) {
        remember(&found->words, 0);
        for (size_t at = 0; at + 1 < own.length; at++)
            found->pairs[pair_at(own.text + at) / 64] |= (uint64_t)1 << pair_at(own.text + at) % 64;
        capsule = PyCapsule_New(found, INDEX, free_index);
    } else
        PyErr_NoMemory();
    if (capsule == NULL) {
        close_words(&found->words);
        Py_DECREF(found->held);
        PyMem_Free(found);
    }
    return capsule;
}

PyObject *make_needles(PyObject *module, PyObject *args)
{
    PyObject *words, *parts;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &words, &PyTuple_Type, &parts))
        return NULL;
    size_t count = (size_t)PyTuple_Size(words), all = count + (size_t)PyTuple_Size(parts);
    Needles *own = PyMem_Malloc(sizeof *own + all * sizeof own->needles[0]);
    if (own == NULL)
        return PyErr_NoMemory();
    *own = (Needles){Py_NewRef(args), count, all};
    PyObject *capsule = NULL;
    size_t at = 0;
    for (; at < all; at++) {
        PyObject *text = at < count ? PyTuple_GetItem(words, (Py_ssize_t)at) : PyTuple_GetItem(parts, (Py_ssize_t)(at - count));
        Py_ssize_t size;
        const char *signs = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &size) : NULL;
        if (signs == NULL)
            break;
        own->needles[at] = word_at((Text){signs, (size_t)size}, 0, (size_t)size);
    }
    if (at == all)
        capsule = PyCapsule_New(own, NEEDLES, free_needles);
    else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "words and parts are texts");
    if (capsule == NULL) {
        Py_DECREF(own->held);
        PyMem_Free(own);
    }
    return capsule;
}

/* Whether a part stands anywhere in a text; what holds not all of its pairs of signs does not hold it. */
static int has_part(const Index *own, Word part)
{
    for (size_t at = 0; at + 1 < part.length; at++) {
        if ((part.text[at] | part.text[at + 1]) & 0x80)
            return 0; /* beyond ASCII */
        if (!(own->pairs[pair_at(part.text + at) / 64] >> pair_at(part.text + at) % 64 & 1))
            return 0;
    }
    if (part.length == 0)
        return 1;
    const char *at = own->text.text, *end = at + own->text.length;
    while ((size_t)(end - at) >= part.length &&
           (at = memchr(at, part.text[0], (size_t)(end - at) - part.length + 1)) != NULL) {
        if (memcmp(at, part.text, part.length) == 0)
            return 1;
        at++;
    }
    return 0;
}

static int holds(const Index *own, const Needles *of)
{
    for (size_t at = 0; at < of->words; at++)
        if (own->words.places[place_of(&own->words, &of->needles[at])])
            return 1;
    for (size_t at = of->words; at < of->count; at++)
        if (has_part(own, of->needles[at]))
            return 1;
    return 0;
}

PyObject *hold_any(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyTuple_Check(given[1])) {
        PyErr_SetString(PyExc_TypeError, "an index and a tuple of needles are wanted");
        return NULL;
    }
    const Index *own = held(given[0], INDEX);
    Py_ssize_t several = PyTuple_Size(given[1]);
    PyObject *found = own == NULL ? NULL : PyList_New(several);
    for (Py_ssize_t at = 0; found != NULL && at < several; at++) {
        const Needles *of = held(PyTuple_GetItem(given[1], at), NEEDLES);
        if (of == NULL || PyList_SetItem(found, at, PyBool_FromLong(holds(own, of))) < 0)
            Py_CLEAR(found);
    }
    return found;
}

/* --- signs in a row by their kinds --------------------------------------------------------------------------------------- */

#define SHAPE "calibrator.kernel.shape"

typedef struct {
    uint64_t begins, ends; /* a bit for each place of each row */
    uint64_t places[256];  /* of each sign, those where its kind is wanted */
} Shape;

static void free_shape(PyObject *capsule)
{
    PyMem_Free(PyCapsule_GetPointer(capsule, SHAPE));
}

PyObject *make_shape(PyObject *module, PyObject *args)
{
    const char *kinds;
    Py_ssize_t size;
    PyObject *rows;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#O!", &kinds, &size, &PyTuple_Type, &rows))
        return NULL;
    Shape *own = PyMem_Calloc(1, sizeof *own);
    if (own == NULL)
        return PyErr_NoMemory();
    Py_ssize_t count = size == 256 ? PyTuple_Size(rows) : -1, place = 0;
    int fits = count > 0;
    for (Py_ssize_t row = 0; row < count && fits; row++) {
        char *wanted;
        Py_ssize_t length;
        fits = PyBytes_AsStringAndSize(PyTuple_GetItem(rows, row), &wanted, &length) == 0 && length > 0 &&
               place + length <= 64;
        own->begins |= fits ? (uint64_t)1 << place : 0;
        for (Py_ssize_t at = 0; at < length && fits; at++, place++)
            for (int sign = 0; sign < 256; sign++)
                own->places[sign] |= (uint64_t)(kinds[sign] == wanted[at]) << place;
        own->ends |= fits ? (uint64_t)1 << (place - 1) : 0;
    }
    PyObject *capsule = fits ? PyCapsule_New(own, SHAPE, free_shape) : NULL;
    if (capsule == NULL) {
        PyMem_Free(own);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "rows of kinds that do not fit");
    }
    return capsule;
}

PyObject *has_shape(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    Py_ssize_t size;
    const char *text = count == 2 && PyUnicode_Check(given[0]) ? PyUnicode_AsUTF8AndSize(given[0], &size) : NULL;
    if (text == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a text and a shape are wanted");
        return NULL;
    }
    const Shape *own = held(given[1], SHAPE);
    if (own == NULL)
        return NULL;
    uint64_t places = 0; /* up to which the signs so far stand in a row */
    for (Py_ssize_t at = 0; at < size && !(places & own->ends); at++)
        places = (places << 1 | own->begins) & own->places[(unsigned char)text[at]];
    return PyBool_FromLong((places & own->ends) != 0);
}

/* --- numbers ------------------------------------------------------------------------------------------------------------ */

/* Where a number ends, of whose digits one stands there: with points and commas between digits where `is_whole`. */
static size_t end_of_number(Text text, size_t at, int is_whole)
{
    while (at < text.length && (is_of(DIGITS, text.text[at]) ||
                                (is_whole && (text.text[at] == '.' || text.text[at] == ',') && at + 1 < text.length &&
                                 is_of(DIGITS, text.text[at + 1]))))
        at++;
    return at;
}

/* Numbers with a dash in front as they are written, or where runs of digits begin. */
static PyObject *numbers_in(PyObject *given, int is_whole)
{
    Text text = ascii_of(given);
    PyObject *found = text.text == NULL ? NULL : PyList_New(0);
    for (size_t at = 0; found != NULL && at < text.length; at++) {
        if (!is_of(DIGITS, text.text[at]))
            continue;
        size_t end = end_of_number(text, at, is_whole), start = at && text.text[at - 1] == '-' ? at - 1 : at;
        PyObject *item = is_whole ? PyUnicode_FromStringAndSize(text.text + start, (Py_ssize_t)(end - start))
                                  : PyLong_FromSize_t(at);
        if (item == NULL || PyList_Append(found, item) < 0)
            Py_CLEAR(found);
        Py_XDECREF(item);
        at = end;
    }
    return found;
}

PyObject *numbers(PyObject *module, PyObject *text)
{
    (void)module;
    return numbers_in(text, 1);
}

PyObject *digits(PyObject *module, PyObject *text)
{
    (void)module;
    return numbers_in(text, 0);
}

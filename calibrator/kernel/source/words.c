/* Words of ASCII texts, counted as Python counts those of `split` and of a pattern of letters. */
#include "tables.h"

#include <string.h>

enum { MOST_CHARACTERS = 2 * (UINT16_MAX - 1), LONGEST_BEGINNING = 6, SHORTEST_RUN = 3 };

typedef struct {
    const char *text;
    size_t length;
} Word;

typedef struct {
    Word *words;
    size_t count;
    uint16_t *places; /* by their hashes: one more than where a word stands in `words`, 0 for none */
    size_t size;      /* of `places`, a power of two */
} Words;

static int is_space(char sign)
{
    return sign == ' ' || (sign >= '\t' && sign <= '\r') || (sign >= 0x1c && sign <= 0x1f);
}

/* An ASCII text; {NULL, 0} with an exception for any other. */
static Word ascii_of(PyObject *text)
{
    Py_ssize_t size;
    const char *own = PyUnicode_AsUTF8AndSize(text, &size);
    if (own == NULL)
        return (Word){NULL, 0};
    unsigned char all = 0;
    for (Py_ssize_t at = 0; at < size; at++)
        all |= (unsigned char)own[at];
    if (all < 0x80 && size <= MOST_CHARACTERS)
        return (Word){own, (size_t)size};
    PyErr_SetString(PyExc_ValueError, "a text that is long or not ASCII alone");
    return (Word){NULL, 0};
}

/* Where in `places` a word stands, or would stand. */
static size_t place_of(const Words *of, Word word)
{
    uint64_t hash = word.length;
    for (size_t at = 0; at < word.length; at++)
        hash = (hash ^ (unsigned char)word.text[at]) * 0x100000001B3u;
    size_t place = (size_t)(hash ^ hash >> 32) & (of->size - 1);
    while (of->places[place]) {
        const Word *own = &of->words[of->places[place] - 1];
        if (own->length == word.length && memcmp(own->text, word.text, word.length) == 0)
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
        size_t place = place_of(of, of->words[at]);
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

/* The words of a text between white space, none remembered; 0 with an exception where memory lacks. */
static int open_words(Word text, Words *found)
{
    *found = (Words){PyMem_Malloc((text.length / 2 + 1) * sizeof(Word)), 0, NULL, 16};
    if (found->words == NULL)
        return 0;
    for (size_t at = 0; at < text.length;) {
        while (at < text.length && is_space(text.text[at]))
            at++;
        size_t start = at;
        while (at < text.length && !is_space(text.text[at]))
            at++;
        if (at > start)
            found->words[found->count++] = (Word){text.text + start, at - start};
    }
    while (found->size < 2 * found->count)
        found->size *= 2;
    return (found->places = PyMem_Malloc(found->size * sizeof *found->places)) != NULL;
}

PyObject *word_counts(PyObject *module, PyObject *args)
{
    PyObject *given[3], *found = NULL;
    Py_ssize_t last;
    Word texts[3];
    Words words[3] = {{NULL, 0, NULL, 0}, {NULL, 0, NULL, 0}, {NULL, 0, NULL, 0}};
    (void)module;
    if (!PyArg_ParseTuple(args, "UUUn", &given[0], &given[1], &given[2], &last))
        return NULL;
    for (int at = 0; at < 3; at++)
        if ((texts[at] = ascii_of(given[at])).text == NULL)
            return NULL;
    Words *asked = &words[0], *said = &words[1], *as_written = &words[2];
    if (open_words(texts[0], asked) && open_words(texts[1], said) && open_words(texts[2], as_written)) {
        size_t repeated = 0, from = last < 0 || (size_t)last > said->count ? 0 : said->count - (size_t)last;
        remember(asked, 0);
        for (size_t at = 0; at < said->count; at++)
            repeated += asked->places[place_of(asked, said->words[at])] != 0;
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
static size_t beginnings_of(Word text, uint64_t *table, size_t size)
{
    size_t count = 0;
    memset(table, 0, size * sizeof *table);
    for (size_t at = 0; at < text.length; at++) {
        uint64_t beginning = 0;
        size_t start = at;
        for (; at < text.length && text.text[at] >= 'a' && text.text[at] <= 'z'; at++)
            if (at - start < LONGEST_BEGINNING)
                beginning = beginning << 8 | (unsigned char)text.text[at];
        if (at - start < SHORTEST_RUN)
            continue;
        size_t place = beginning_at(table, size, beginning);
        count += !table[place];
        table[place] = beginning;
    }
    return count;
}

PyObject *beginnings(PyObject *module, PyObject *args)
{
    PyObject *given[2];
    Word texts[2];
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
    uint64_t *memory = PyMem_Malloc((sizes[0] + sizes[1]) * sizeof *memory);
    if (memory == NULL)
        return PyErr_NoMemory();
    tables[0] = memory;
    tables[1] = memory + sizes[0];
    for (int at = 0; at < 2; at++)
        counts[at] = beginnings_of(texts[at], tables[at], sizes[at]);
    for (size_t at = 0; at < sizes[1]; at++)
        both += tables[1][at] && tables[0][beginning_at(tables[0], sizes[0], tables[1][at])];
    PyMem_Free(memory);
    return Py_BuildValue("nnn", (Py_ssize_t)counts[0], (Py_ssize_t)counts[1], (Py_ssize_t)both);
}

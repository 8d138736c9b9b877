#include "tables.h"

#include <string.h>

int open_arrays(Arrays *arrays, Py_ssize_t room)
{
    arrays->count = 0;
    arrays->room = room;
    arrays->held = PyMem_Calloc((size_t)room + 1, sizeof(Py_buffer));
    if (arrays->held == NULL) {
        arrays->room = 0;
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

void close_arrays(Arrays *arrays)
{
    for (Py_ssize_t at = 0; at < arrays->count; at++)
        PyBuffer_Release(&arrays->held[at]);
    PyMem_Free(arrays->held);
    arrays->held = NULL;
    arrays->count = 0;
}

static Py_ssize_t size_of(char kind)
{
    switch (kind) {
    case 'b': case 'B': return 1;
    case 'H': case 'e': return 2;
    case 'i': case 'f': return 4;
    default: return 8;
    }
}

static int is_of_kind(const Py_buffer *view, char kind)
{
    const char *format = view->format ? view->format : "B";
    if (*format == '@' || *format == '=')
        format++;
    if (*format == '\0' || format[1] != '\0' || view->itemsize != size_of(kind))
        return 0;
    return *format == kind || (*format == 'l' && (kind == 'i' || kind == 'q')); /* a long has either size */
}

Py_buffer *array_of(Arrays *arrays, PyObject *given, char kind, int dimensions, int is_written)
{
    if (arrays->count >= arrays->room) {
        PyErr_SetString(PyExc_SystemError, "more arrays than there is room for");
        return NULL;
    }
    Py_buffer *view = &arrays->held[arrays->count];
    int wanted = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (is_written ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(given, view, wanted) < 0)
        return NULL;
    arrays->count++;
    if (!is_of_kind(view, kind) || view->ndim != dimensions) {
        PyErr_Format(PyExc_ValueError, "an array of %d dimensions and kind %s, where %d and %c are wanted", view->ndim,
                     view->format ? view->format : "B", dimensions, kind);
        return NULL;
    }
    return view;
}

static int number_of(PyObject *given, Py_ssize_t at, int32_t limit, int32_t *found)
{
    PyObject *item = PyList_Check(given) ? PyList_GetItem(given, at) : PyTuple_GetItem(given, at);
    long value = item == NULL ? -1 : PyLong_AsLong(item);
    if (value == -1 && PyErr_Occurred())
        return -1;
    if (value < 0 || value >= limit) {
        PyErr_Format(PyExc_IndexError, "%ld is no number below %d", value, (int)limit);
        return -1;
    }
    *found = (int32_t)value;
    return 0;
}

/* The same of an array of int32, which needs no look at each as an object. */
static Py_ssize_t numbers_of_array(PyObject *given, int32_t limit, Py_ssize_t head, Py_ssize_t tail, int32_t *found)
{
    Arrays arrays;
    if (open_arrays(&arrays, 1) < 0)
        return -1;
    Py_buffer *view = array_of(&arrays, given, 'i', 1, 0);
    Py_ssize_t count = view == NULL ? -1 : view->shape[0];
    if (count > head + tail) {
        memcpy(found, view->buf, (size_t)head * sizeof *found);
        memcpy(found + head, (int32_t *)view->buf + count - tail, (size_t)tail * sizeof *found);
        count = head + tail;
    } else if (count > 0)
        memcpy(found, view->buf, (size_t)count * sizeof *found);
    for (Py_ssize_t at = 0; at < count; at++)
        if (found[at] < 0 || found[at] >= limit) {
            PyErr_Format(PyExc_IndexError, "%d is no number below %d", (int)found[at], (int)limit);
            count = -1;
        }
    close_arrays(&arrays);
    return count;
}

Py_ssize_t numbers_of(PyObject *given, int32_t limit, Py_ssize_t head, Py_ssize_t tail, int32_t *found)
{
    if (PyObject_CheckBuffer(given))
        return numbers_of_array(given, limit, head, tail, found);
    if (!PyList_Check(given) && !PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "numbers stand in an array, a list or a tuple");
        return -1;
    }
    Py_ssize_t size = PyList_Check(given) ? PyList_Size(given) : PyTuple_Size(given);
    Py_ssize_t left_out = size > head + tail ? size - head - tail : 0, count = 0;
    for (Py_ssize_t at = 0; at < size; at++) {
        if (left_out && at == head)
            at += left_out;
        if (number_of(given, at, limit, &found[count]) < 0)
            return -1;
        count++;
    }
    return count;
}

size_t distinct_of(const int32_t *some, size_t count, uint64_t *marks, int32_t *found)
{
    size_t known = 0;
    int32_t last = 0;
    for (size_t at = 0; at < count; at++) {
        marks[some[at] / 64] |= (uint64_t)1 << some[at] % 64;
        last = some[at] > last ? some[at] : last;
    }
    for (int32_t word = 0; word <= last / 64; word++)
        for (uint64_t left = marks[word]; left; left &= left - 1)
            found[known++] = 64 * word + __builtin_ctzll(left);
    return known;
}

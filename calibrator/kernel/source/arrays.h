/* Arrays that come from Python: kind and shape are checked before anything is read of them. */
#ifndef ARRAYS_H
#define ARRAYS_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000 /* 3.11, the first whose limited API has buffers */
#endif
#include <Python.h>
#include <stdint.h>

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

/* The numbers of a list or tuple, each at least 0 and below `limit`; of a long one the first `head` and the last `tail`.
   Gives how many were written, or -1 with an exception. */
Py_ssize_t numbers_of(PyObject *given, int32_t limit, Py_ssize_t head, Py_ssize_t tail, int32_t *found);

#endif

/* The functions of the small encoder that Python calls. */
#include "tables.h"

PyObject *quantized_linear(PyObject *module, PyObject *args)
{
    PyObject *capsule, *given, *out, *result = NULL;
    Arrays arrays;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &given, &out))
        return NULL;
    const HeldQuantizedLayer *own = held(capsule, QUANTIZED_LAYER);
    if (own == NULL || open_arrays(&arrays, 2) < 0)
        return NULL;
    const QuantizedLayer *of = &own->layer;
    Py_buffer *x = array_of(&arrays, given, 'f', 2, 0);
    Py_buffer *found = x == NULL ? NULL : array_of(&arrays, out, 'f', 2, 1);
    uint8_t *work = NULL;
    float *steps = NULL;
    if (found == NULL)
        ;
    else if (x->shape[0] != found->shape[0] || (size_t)x->shape[1] != of->inputs ||
             (size_t)found->shape[1] != of->outputs)
        PyErr_SetString(PyExc_ValueError, "states of another shape");
    else if ((work = PyMem_Malloc((size_t)x->shape[0] * of->inputs + 1)) == NULL ||
             (steps = PyMem_Malloc(((size_t)x->shape[0] + 1) * sizeof *steps)) == NULL)
        PyErr_NoMemory();
    else {
        Py_BEGIN_ALLOW_THREADS
        arithmetic->quantized_linear(of, x->buf, (size_t)x->shape[0], work, steps, found->buf);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyMem_Free(work);
    PyMem_Free(steps);
    close_arrays(&arrays);
    return result;
}

PyObject *gelu(PyObject *module, PyObject *args)
{
    PyObject *given, *result = NULL;
    Arrays arrays;
    (void)module;
    if (!PyArg_ParseTuple(args, "O", &given) || open_arrays(&arrays, 1) < 0)
        return NULL;
    Py_buffer *x = array_of(&arrays, given, 'f', 2, 1);
    if (x != NULL) {
        Py_BEGIN_ALLOW_THREADS
        arithmetic->gelu(x->buf, (size_t)(x->shape[0] * x->shape[1]));
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    close_arrays(&arrays);
    return result;
}

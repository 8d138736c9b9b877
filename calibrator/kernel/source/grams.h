/* Hashed n-grams, as `calibrator/features/ngrams.py` has them. */
#ifndef GRAMS_H
#define GRAMS_H

#include "arrays.h"

PyObject *grams(PyObject *module, PyObject *args);

#endif

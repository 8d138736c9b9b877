/* Words cut into pieces, as BERT's tokenizer does it with words of ASCII letters and digits. */
#ifndef PIECES_H
#define PIECES_H

#include "arrays.h"

#define VOCABULARY "calibrator.kernel.vocabulary"

PyObject *make_vocabulary(PyObject *module, PyObject *args);
PyObject *cut(PyObject *module, PyObject *args);

#endif

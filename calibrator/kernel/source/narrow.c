/* The arithmetic for every machine. */
#include "arithmetic.h"
#include "vectors.h"
#include "arithmetic_body.h"
#include "layers_body.h"
#include "relevance_body.h"

const Arithmetic narrow_arithmetic = {bags, topics, difficulty, tower, distances, trees, gelu, quantized_linear,
                                      relevance, rarest_pieces, compared};

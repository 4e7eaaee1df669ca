// The functions that native.py and weights.py call: to lay out weights, and to translate sentences with them.

#include "search.h"

using namespace decoding;

#define DECODING_FOR(T, SUFFIX)                                                                                        \
  extern "C" int64_t decoding_packed_bytes_##SUFFIX(int64_t inputs, int64_t outputs, int64_t int8) {                   \
    return packed_bytes<T>(inputs, outputs, int8 != 0);                                                                \
  }                                                                                                                    \
  extern "C" void decoding_pack_##SUFFIX(const T* weight, const T* bias, int64_t inputs, int64_t outputs,              \
                                         int64_t int8, void* to, Packed<T>* packed) {                                  \
    *packed = pack<T>(weight, bias, inputs, outputs, int8 != 0, to);                                                   \
  }                                                                                                                    \
  extern "C" void decoding_multiply_##SUFFIX(const Packed<T>* packed, const T* x, int64_t rows, T* y, int64_t relu) {  \
    multiply<T>(*packed, x, rows, y, relu != 0);                                                                       \
  }                                                                                                                    \
  extern "C" void decoding_use_threads_##SUFFIX(int64_t threads) { omp_set_num_threads(static_cast<int>(threads)); }   \
  extern "C" int64_t decoding_search_##SUFFIX(const Model<T>* model, const Settings* settings, const Batch* batch,     \
                                              const Results<T>* results) {                                             \
    return search<T>(*model, *settings, *batch, *results);                                                             \
  }

DECODING_FOR(float, float32)
DECODING_FOR(double, float64)

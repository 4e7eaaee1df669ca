// What Python calls for translation on a CPU: the whole search; and its parts, for models of which the search does not
// know all: products, attention of single queries to cached keys, residual connections with LayerNorm, and the best
// continuations of hypotheses.

#include "search.h"

namespace {

using namespace decoding;

// Where the keys and values of each query lie: its j-th key is row places[j] of slab j, or of the only slab.
template <typename T>
struct Slabs {
  const T* const* keys;
  const T* const* values;
  int64_t per_slab;  // 1: a slab for each j; 0: one slab
  int64_t row;       // stride between rows of a slab
  const int32_t* places;
  int64_t places_row;      // stride between rows of places
  const int32_t* counts;   // for each row of places, the number of keys; null if they are all `most`
  const int32_t* sources;  // for each query, its row of places; null if query i has row i
  int64_t most;

  struct Keys {
    const Slabs& slabs;
    const int32_t* places;
    int64_t count;
    const T* key(int64_t j) const { return slabs.keys[j * slabs.per_slab] + places[j] * slabs.row; }
    const T* value(int64_t j) const { return slabs.values[j * slabs.per_slab] + places[j] * slabs.row; }
  };
  Keys of(int64_t query) const {
    const int64_t source = sources == nullptr ? query : sources[query];
    return {*this, places + source * places_row, counts == nullptr ? most : counts[source]};
  }
};

}  // namespace

// -------------------------------------------------------------------------------- what cpu_steps.py calls, by ctypes

#define DECODING_FOR(T, SUFFIX)                                                                                        \
  extern "C" void decoding_attend_##SUFFIX(                                                                            \
      const int64_t* sizes, const T* query, const T* const* keys, const T* const* values, const int32_t* places,       \
      const int32_t* counts, const int32_t* sources, const double* alpha, T* out, T* weights) {                        \
    const Slabs<T> slabs{keys, values, sizes[4], sizes[5], places, sizes[6], counts, sources, sizes[3]};               \
    attend<T>(slabs, sizes[0], sizes[1], sizes[2], alpha, query, sizes[7], out, sizes[1] * sizes[2], weights);         \
  }                                                                                                                    \
  extern "C" void decoding_add_norm_##SUFFIX(int64_t rows, int64_t width, T* x, const T* update, const T* weight,      \
                                             const T* bias, double eps, T* out) {                                      \
    add_norm<T>(rows, width, x, update, weight, bias, eps, out);                                                       \
  }                                                                                                                    \
  extern "C" void decoding_best_##SUFFIX(                                                                              \
      int64_t sentences, int64_t beams, int64_t symbols, int64_t wanted, T* logits, const T* scores,                   \
      const int64_t* banned, int64_t bans, const int64_t* only, const int64_t* repeated, const int64_t* starts,        \
      int64_t unknown, double penalty, int64_t sparse, T* to_scores, int64_t* to_symbols, int64_t* to_beams) {         \
    const Rules rules{banned, bans, only, repeated, starts, unknown, penalty, sparse != 0};                            \
    best<T>(sentences, beams, symbols, wanted, logits, scores, rules, to_scores, to_symbols, to_beams);                \
  }                                                                                                                    \
  extern "C" int64_t decoding_packed_bytes_##SUFFIX(int64_t inputs, int64_t outputs, int64_t int8) {                   \
    return packed_bytes<T>(inputs, outputs, int8 != 0);                                                                \
  }                                                                                                                    \
  extern "C" void decoding_pack_##SUFFIX(const T* weight, const T* bias, int64_t inputs, int64_t outputs,              \
                                         int64_t int8, void* to, decoding::Packed<T>* packed) {                        \
    decoding::pack<T>(weight, inputs, outputs, int8 != 0, to);                                                         \
    *packed = decoding::packed_at<T>(to, inputs, outputs, int8 != 0, bias);                                            \
  }                                                                                                                    \
  extern "C" void decoding_multiply_##SUFFIX(const decoding::Packed<T>* packed, const T* x, int64_t rows,              \
                                             int64_t x_row, T* y, int64_t y_row, int64_t relu) {                       \
    decoding::multiply<T>(*packed, x, rows, x_row, y, y_row, relu != 0);                                               \
  }                                                                                                                    \
  extern "C" void decoding_use_threads_##SUFFIX(int64_t threads) { omp_set_num_threads(static_cast<int>(threads)); }   \
  extern "C" int64_t decoding_search_##SUFFIX(const Model<T>* model, const Settings* settings, const Batch* batch,     \
                                              const Results<T>* results) {                                             \
    return search<T>(*model, *settings, *batch, *results);                                                             \
  }

DECODING_FOR(float, float32)
DECODING_FOR(double, float64)

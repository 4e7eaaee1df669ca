// What translation on a CPU does at each step: products of matrices, attention of single queries to cached keys,
// residual connections with LayerNorm, and the best continuations of the hypotheses of each sentence.

#include <ATen/Parallel.h>

#include "../entmax/lanes.h"
#include "products.h"

namespace {

using namespace entmax;

// Operations that are worth waking a thread for.
constexpr double grain = 1 << 15;

// Apply work(begin, end) to parts of 0 … items − 1, each item of which costs so many operations.
template <typename Work>
void share_out(int64_t items, double cost, const Work& work) {
  at::parallel_for(0, items, std::max<int64_t>(1, grain / cost), work);
}

// -------------------------------------------------------------------------------------------------- attention

// Vectors of the products of a row with four others, entry by entry, added up.
template <typename T>
ENTMAX_INLINE void products(const T* a, const T* const* b, int64_t width, Vec<T>* totals) {
  constexpr int lanes = Simd<T>::lanes;
  int64_t d = 0;
  for (; d + lanes <= width; d += lanes) {
    const Vec<T> part = load(a + d);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) totals[i] += part * load(b[i] + d);
  }
  if (d == width) return;
  const Vec<T> part = load(a + d, width - d);
  for (int i = 0; i < 4; ++i) totals[i] += part * load(b[i] + d, width - d);
}

// The sums of four vectors.
template <typename T>
ENTMAX_INLINE void sums(const Vec<T>* v, T* to) {
#ifdef __AVX512F__
  if constexpr (std::is_same<T, float>::value) {
    // Interleaved and added, so that each quarter of a vector holds a part of all four sums.
    const auto both = [](__m512 a, __m512 b) {
      return (__m512d)_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    };
    const __m512d ab = both((__m512)v[0], (__m512)v[1]), cd = both((__m512)v[2], (__m512)v[3]);
    const __m512 all = (__m512)_mm512_unpacklo_pd(ab, cd) + (__m512)_mm512_unpackhi_pd(ab, cd);
    const __m256 half = _mm512_castps512_ps256(all) + _mm512_extractf32x8_ps(all, 1);
    _mm_storeu_ps(to, _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1));
    return;
  }
#endif
  for (int i = 0; i < 4; ++i) to[i] = sum<T>(v[i]);
}

// Where the keys and values of each query lie: its j-th key is row places[j] of slab j, or of the only slab.
template <typename T>
struct Cache {
  const T* const* keys;
  const T* const* values;
  int64_t per_slab;  // 1: a slab for each j; 0: one slab
  int64_t row;       // stride between rows of a slab
  const int32_t* places;
  int64_t places_row;      // stride between rows of places
  const int32_t* counts;   // for each row of places, the number of keys; null if they are all `most`
  const int32_t* sources;  // for each query, its row of places; null if query i has row i
  int64_t most;

  int64_t source(int64_t query) const { return sources == nullptr ? query : sources[query]; }
  int64_t count(int64_t source) const { return counts == nullptr ? most : counts[source]; }
  int64_t at(int64_t source, int64_t j) const { return places[source * places_row + j] * row; }
};

// Pairs of a query and a head are rows of α-entmax, as many at once as a vector has lanes.
template <typename T>
class Attention {
 public:
  static constexpr int lanes = Simd<T>::lanes;

  Attention(const Cache<T>& cache, int64_t heads, int64_t head_dim, const double* alpha, int64_t alphas)
      : cache_(cache), heads_(heads), head_dim_(head_dim), alpha_(alpha), alphas_(alphas), lanes_(cache.most + 1) {}

  // Pairs first … first + pairs − 1; queries and outputs have the heads side by side. Unless weights are null, each
  // pair has a row of `most` there, of which those without a key are left as they are.
  void tile(int64_t first, int64_t pairs, const T* queries, int64_t query_row, T* out, int64_t out_row, T* weights) {
    Vec<T> eps;
    int64_t counts[lanes], columns = 1;
    IntVec<T> broken = {};
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const int64_t pair = first + std::min(lane, pairs - 1), query = pair / heads_, head = pair % heads_;
      eps[lane] = never_zero<T>(alpha_[head % alphas_] - 1);
      counts[lane] = 0;
      if (lane >= pairs) continue;
      const T top = score(lane, query, head, queries + query * query_row, counts[lane]);
      broken[lane] = !(top < std::numeric_limits<T>::infinity());
      if (broken[lane] || top == -std::numeric_limits<T>::infinity()) {
        counts[lane] = broken[lane] ? counts[lane] : 0;
        continue;
      }
      columns = std::max(columns, counts[lane]);
      for (int64_t j = 0; j < counts[lane]; ++j) lanes_.z[j][lane] -= top;
    }
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const int64_t known = broken[lane] ? 0 : counts[lane];
      if (known == 0) lanes_.z[0][lane] = 0;  // a row of one score, so that the lane is done at once
      for (int64_t j = std::max<int64_t>(known, 1); j < columns; ++j) lanes_.z[j][lane] = -2 / eps[lane];
    }
    lanes_.solve(eps, columns);
    for (int64_t lane = 0; lane < pairs; ++lane) {
      const int64_t query = (first + lane) / heads_, head = (first + lane) % heads_;
      T* to = out + query * out_row + head * head_dim_;
      if (broken[lane]) {
        std::fill(to, to + head_dim_, std::numeric_limits<T>::quiet_NaN());
      } else {
        combine(lane, query, head, counts[lane], to);
      }
      if (weights == nullptr) continue;
      T* row = weights + (first + lane) * cache_.most;
      for (int64_t j = 0; j < counts[lane]; ++j) {
        row[j] = broken[lane] ? std::numeric_limits<T>::quiet_NaN() : lanes_.p[j][lane];
      }
    }
  }

 private:
  // Scores of a query and a head; returns the greatest, NaN if one is NaN.
  T score(int64_t lane, int64_t query, int64_t head, const T* queries, int64_t& count) {
    const T scale = 1 / std::sqrt(static_cast<T>(head_dim_));
    const int64_t source = cache_.source(query), from = head * head_dim_;
    count = cache_.count(source);
    T top = -std::numeric_limits<T>::infinity();
    for (int64_t start = 0; start < count; start += 4) {
      const int64_t some = std::min<int64_t>(count - start, 4);
      const T* keys[4];
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t j = start + std::min(i, some - 1);
        keys[i] = cache_.keys[j * cache_.per_slab] + cache_.at(source, j) + from;
      }
      Vec<T> totals[4] = {};
      products(queries + from, keys, head_dim_, totals);
      T found[4];
      sums(totals, found);
      for (int64_t i = 0; i < some; ++i) {
        const T z = found[i] * scale;
        lanes_.z[start + i][lane] = z;
        top = z > top || z != z ? z : top;
      }
    }
    return top;
  }

  // The values of a query and a head, weighted.
  void combine(int64_t lane, int64_t query, int64_t head, int64_t count, T* to) const {
    const int64_t source = cache_.source(query);
    for (int64_t d = 0; d < head_dim_; d += 4 * lanes) {
      const int64_t width = std::min<int64_t>(head_dim_ - d, 4 * lanes);
      Vec<T> sums[4] = {};
      for (int64_t j = 0; j < count; ++j) {
        const T weight = lanes_.p[j][lane];
        if (weight == 0) continue;
        const T* value = cache_.values[j * cache_.per_slab] + cache_.at(source, j) + head * head_dim_ + d;
        for (int64_t v = 0; v * lanes < width; ++v) {
          sums[v] += weight * load(value + v * lanes, width - v * lanes);
        }
      }
      for (int64_t v = 0; v * lanes < width; ++v) store<T>(sums[v], to + d + v * lanes, width - v * lanes);
    }
  }

  Cache<T> cache_;
  int64_t heads_, head_dim_;
  const double* alpha_;
  int64_t alphas_;
  Lanes<T> lanes_;
};

template <typename T>
void attend(const Cache<T>& cache, int64_t queries, int64_t heads, int64_t head_dim, const double* alpha,
            int64_t alphas, const T* query, int64_t query_row, T* out, int64_t out_row, T* weights) {
  constexpr int lanes = Simd<T>::lanes;
  const int64_t pairs = queries * heads, tiles = (pairs + lanes - 1) / lanes;
  share_out(tiles, 1.0 * lanes * cache.most * (head_dim / 4 + 16), [&](int64_t begin, int64_t end) {
    Attention<T> attention(cache, heads, head_dim, alpha, alphas);
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile * lanes;
      attention.tile(first, std::min<int64_t>(lanes, pairs - first), query, query_row, out, out_row, weights);
    }
  });
}

// -------------------------------------------------------------------------------------------------- LayerNorm

// out = LayerNorm(x + update), and x + update in x.
template <typename T>
void add_norm(int64_t rows, int64_t width, T* x, const T* update, const T* weight, const T* bias, double eps, T* out) {
  constexpr int lanes = Simd<T>::lanes;
  share_out(rows, 4.0 * width / lanes, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* from = x + row * width;
      T* to = out + row * width;
      Vec<T> total = {}, square = {};
      for (int64_t d = 0; d < width; d += lanes) {
        Vec<T> value = load(from + d, width - d);
        if (update != nullptr) {
          value += load(update + row * width + d, width - d);
          store<T>(value, from + d, width - d);
        }
        total += value;
        store<T>(value, to + d, width - d);
      }
      const T mean = sum<T>(total) / width;
      for (int64_t d = 0; d < width; d += lanes) {
        const Vec<T> centred = load(to + d, width - d, mean) - mean;
        square += centred * centred;
      }
      const T factor = 1 / std::sqrt(sum<T>(square) / width + static_cast<T>(eps));
      for (int64_t d = 0; d < width; d += lanes) {
        const Vec<T> normal = (load(to + d, width - d) - mean) * factor;
        store<T>(normal * load(weight + d, width - d) + load(bias + d, width - d), to + d, width - d);
      }
    }
  });
}

// ---------------------------------------------------------------------------------------- best continuations

// What may follow, and at which price.
struct Rules {
  const int64_t* banned;  // for all hypotheses; does not concern `only`
  int64_t bans;
  const int64_t* only;      // for each hypothesis, the one symbol allowed, or −1; null: all symbols
  const int64_t* repeated;  // symbols banned for single hypotheses, in their order; null: none
  const int64_t* starts;    // for each hypothesis, where its part of `repeated` starts, and for the last where it ends
  int64_t unknown;          // the symbol whose log-probability is lowered by penalty
  double penalty;
  bool sparse;  // rows are probabilities, many of them 0, instead of logits

  // Set the scores of all banned symbols of a hypothesis; returns the one symbol allowed, or −1.
  template <typename T>
  int64_t apply(int64_t row, T* values, T lowest) const {
    if (repeated != nullptr) {
      for (int64_t i = starts[row]; i < starts[row + 1]; ++i) values[repeated[i]] = lowest;
    }
    if (only != nullptr && only[row] >= 0) return only[row];
    for (int64_t i = 0; i < bans; ++i) values[banned[i]] = lowest;
    return -1;
  }
};

template <typename T>
struct Found {
  T* scores;
  int64_t* symbols;
  int64_t* beams;
  int64_t wanted, count = 0;

  T worst() const { return count < wanted ? -std::numeric_limits<T>::infinity() : scores[wanted - 1]; }

  // Keeps the order: descending, what was found first before its equals.
  void add(T score, int64_t symbol, int64_t beam) {
    int64_t at = count < wanted ? count++ : wanted - 1;
    for (; at > 0 && scores[at - 1] < score; --at) {
      scores[at] = scores[at - 1];
      symbols[at] = symbols[at - 1];
      beams[at] = beams[at - 1];
    }
    scores[at] = score;
    symbols[at] = symbol;
    beams[at] = beam;
  }
};

// Add the best continuations of one hypothesis. Changes its logits.
template <typename T>
void search_row(T* logits, int64_t symbols, T score, int64_t row, int64_t beam, const Rules& rules, Found<T>& found) {
  constexpr int lanes = Simd<T>::lanes;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  Vec<T> greatest = -infinity + Vec<T>{};
  IntVec<T> broken = {};
  for (int64_t i = 0; i < symbols; i += lanes) {
    const Vec<T> values = load(logits + i, symbols - i, -infinity);
    broken |= values != values;
    greatest = maximum(values, greatest);
  }
  T top = greatest[0];
  for (int lane = 1; lane < lanes; ++lane) top = std::max(top, greatest[lane]);
  if (any<T>(broken) || !(std::abs(top) < infinity)) return;  // as fairseq: nothing follows a NaN
  Vec<T> total = {};
  for (int64_t i = 0; i < symbols; i += lanes) {
    const Vec<T> power = (load(logits + i, symbols - i, -infinity) - top) * static_cast<T>(M_LOG2E);
    const Vec<T> value = exp2<T>(maximum(power, Simd<T>::least_log2 + Vec<T>{}));
    total += power < Simd<T>::least_log2 ? Vec<T>{} : value;
  }
  const T log_mass = std::log(sum<T>(total));
  logits[rules.unknown] -= static_cast<T>(rules.penalty);
  const int64_t only = rules.apply(row, logits, -infinity);
  if (only >= 0) {
    const T value = (logits[only] - top) - log_mass + score;
    if (value > found.worst()) found.add(value, only, beam);
    return;
  }
  for (int64_t i = 0; i < symbols; i += lanes) {
    const Vec<T> values = ((load(logits + i, symbols - i, -infinity) - top) - log_mass) + score;
    uint32_t better = bits<T>(values > found.worst());
    for (; better != 0; better &= better - 1) {
      const int lane = __builtin_ctz(better);
      if (values[lane] > found.worst()) found.add(values[lane], i + lane, beam);
    }
  }
}

// The same for probabilities instead of logits. Logarithms are only taken of those that may be chosen.
template <typename T>
void search_sparse_row(T* p, int64_t symbols, T score, int64_t row, int64_t beam, const Rules& rules,
                       Found<T>& found) {
  constexpr int lanes = Simd<T>::lanes;
  IntVec<T> broken = {};
  for (int64_t i = 0; i < symbols; i += lanes) {
    const Vec<T> values = load(p + i, symbols - i);
    broken |= values != values;
  }
  if (any<T>(broken)) return;
  const T penalty = static_cast<T>(rules.penalty);
  const auto consider = [&](int64_t symbol) {
    const T value = std::log(p[symbol]) - (symbol == rules.unknown ? penalty : T(0)) + score;
    if (value > found.worst()) found.add(value, symbol, beam);
  };
  const int64_t only = rules.apply(row, p, T(0));
  if (only >= 0) return consider(only);
  // No lower one is better than the worst found so far, with a margin for rounding.
  const T lowest = std::exp(found.worst() - score + std::min(penalty, T(0))) * static_cast<T>(0.999);
  for (int64_t i = 0; i < symbols; i += lanes) {
    uint32_t possible = bits<T>(load(p + i, symbols - i) > lowest);
    for (; possible != 0; possible &= possible - 1) consider(i + __builtin_ctz(possible));
  }
}

template <typename T>
void best(int64_t sentences, int64_t beams, int64_t symbols, int64_t wanted, T* logits, const T* scores,
          const Rules& rules, T* to_scores, int64_t* to_symbols, int64_t* to_beams) {
  share_out(sentences, 4.0 * beams * symbols / Simd<T>::lanes, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      Found<T> found{to_scores + s * wanted, to_symbols + s * wanted, to_beams + s * wanted, wanted};
      for (int64_t beam = 0; beam < beams; ++beam) {
        if (scores[s * beams + beam] == -std::numeric_limits<T>::infinity()) continue;
        const auto search = rules.sparse ? search_sparse_row<T> : search_row<T>;
        const int64_t row = s * beams + beam;
        search(logits + row * symbols, symbols, scores[row], row, beam, rules, found);
      }
    }
  });
}

}  // namespace

// -------------------------------------------------------------------------------- what cpu.py calls, by ctypes

#define DECODING_FOR(T, SUFFIX)                                                                                        \
  extern "C" void decoding_attend_##SUFFIX(                                                                            \
      const int64_t* sizes, const T* query, const T* const* keys, const T* const* values, const int32_t* places,       \
      const int32_t* counts, const int32_t* sources, const double* alpha, int64_t alphas, T* out, T* weights) {        \
    const Cache<T> cache{keys, values, sizes[4], sizes[5], places, sizes[6], counts, sources, sizes[3]};               \
    attend<T>(cache, sizes[0], sizes[1], sizes[2], alpha, alphas, query, sizes[7], out, sizes[1] * sizes[2], weights); \
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
    return decoding::packed_bytes<T>(inputs, outputs, int8 != 0);                                                      \
  }                                                                                                                    \
  extern "C" void decoding_pack_##SUFFIX(const T* weight, const T* bias, int64_t inputs, int64_t outputs,              \
                                         int64_t int8, void* to, decoding::Packed<T>* packed) {                        \
    decoding::pack<T>(weight, inputs, outputs, int8 != 0, to);                                                         \
    *packed = decoding::packed_at<T>(to, inputs, outputs, int8 != 0, bias);                                            \
  }                                                                                                                    \
  extern "C" void decoding_multiply_##SUFFIX(const decoding::Packed<T>* packed, const T* x, int64_t rows,              \
                                             int64_t x_row, T* y, int64_t y_row, int64_t relu) {                       \
    decoding::multiply<T>(*packed, x, rows, x_row, y, y_row, relu != 0);                                               \
  }

DECODING_FOR(float, float32)
DECODING_FOR(double, float64)

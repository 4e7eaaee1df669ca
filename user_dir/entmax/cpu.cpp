// α-entmax over the rows of a matrix of scores, forward and backward, for the CPU.
//
// Notation as in reference.py: ε = α − 1, u = 1 + ε (z − λ), p = u^(1/ε) where u > 0, w = p^(1−ε) = p / u.
//
// Forward: as many rows as a vector has lanes are solved at once, each row in a lane of its own, so that Newton's
// method on λ needs no sum across lanes, and every row has its own α. Before that, each row is cut down to the
// scores that can get any weight at all: mostly few, whatever their number was.
// Backward: one pass over the output gives w and what the gradient of α needs, a second one both gradients.
//
// The vectors are GCC's and Clang's vector extension: arithmetic that the compiler turns into what the target has.

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace {

// ---------------------------------------------------------------------------------------------- vectors

template <typename T>
struct Simd;

template <>
struct Simd<float> {
  static constexpr int lanes = 16;
  static constexpr int mantissa_bits = 23;
  static constexpr int log_terms = 4;        // of atanh's series: |s| ≤ 0.172 leaves 2e-9
  static constexpr int exp_terms = 7;        // of exp's: |r| ≤ 0.347 leaves 5e-9
  static constexpr int phi_terms = 10;       // of φ's below: s ≤ 1 leaves 2e-9
  static constexpr float least_log2 = -126;  // of a normal number
  typedef int32_t Int;
  typedef float Vec __attribute__((vector_size(64)));
  typedef int32_t IntVec __attribute__((vector_size(64)));
};

template <>
struct Simd<double> {
  static constexpr int lanes = 8;
  static constexpr int mantissa_bits = 52;
  static constexpr int log_terms = 10;
  static constexpr int exp_terms = 13;
  static constexpr int phi_terms = 18;
  static constexpr double least_log2 = -1022;
  typedef int64_t Int;
  typedef double Vec __attribute__((vector_size(64)));
  typedef int64_t IntVec __attribute__((vector_size(64)));
};

template <typename T>
using Vec = typename Simd<T>::Vec;
template <typename T>
using IntVec = typename Simd<T>::IntVec;

template <typename T>
inline Vec<T> load(const T* from) {
  Vec<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <typename T>
inline Vec<T> load(const T* from, int64_t count, T rest = 0) {
  if (count >= Simd<T>::lanes) return load(from);
  Vec<T> v = rest + Vec<T>{};
  for (int64_t i = 0; i < count; ++i) v[i] = from[i];
  return v;
}

template <typename T>
inline void store(Vec<T> v, T* to, int64_t count) {
  if (count >= Simd<T>::lanes) {
    std::memcpy(to, &v, sizeof v);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = v[i];
  }
}

template <typename V>
inline V maximum(V a, V b) {
  return a > b ? a : b;
}

template <typename T>
inline T sum(Vec<T> v) {
  T parts[Simd<T>::lanes];
  std::memcpy(parts, &v, sizeof v);
  for (int width = Simd<T>::lanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) parts[i] += parts[i + width];
  }
  return parts[0];
}

template <typename T>
inline bool any(IntVec<T> mask) {
#ifdef __AVX512F__
  return _mm512_test_epi64_mask((__m512i)mask, (__m512i)mask) != 0;
#else
  uint64_t parts[8], some = 0;
  std::memcpy(parts, &mask, sizeof mask);
  for (uint64_t part : parts) some |= part;
  return some != 0;
#endif
}

// ---------------------------------------------------------------------------------- elementary functions

// u = 2^k m with m in [√½, √2), for normal u > 0: k, and 2^−k.
template <typename T>
inline void split(Vec<T> u, Vec<T>& k, Vec<T>& scale) {
  constexpr int bits = Simd<T>::mantissa_bits;
  constexpr typename Simd<T>::Int bias = std::numeric_limits<T>::max_exponent - 1;
  const Vec<T> root_half = static_cast<T>(M_SQRT1_2) + Vec<T>{};
  const IntVec<T> exponent = ((IntVec<T>)u - (IntVec<T>)root_half) >> bits;
  k = __builtin_convertvector(exponent, Vec<T>);
  scale = (Vec<T>)((bias - exponent) << bits);
}

// log2((1 + f) 2^k) from s = f / (2 + f), by log(1 + f) = 2 atanh(s) = 2 (s + s³/3 + s⁵/5 + …).
template <typename T>
inline Vec<T> log2_from(Vec<T> s, Vec<T> k) {
  const Vec<T> square = s * s;
  Vec<T> series = static_cast<T>(2 * M_LOG2E / (2 * Simd<T>::log_terms + 1)) + Vec<T>{};
  for (int i = Simd<T>::log_terms - 1; i >= 0; --i) series = series * square + static_cast<T>(2 * M_LOG2E / (2 * i + 1));
  return s * series + k;
}

template <typename T>
inline Vec<T> log2(Vec<T> u) {
  Vec<T> k, scale;
  split<T>(u, k, scale);
  const Vec<T> f = u * scale - 1;
  return log2_from<T>(f / (f + 2), k);
}

// log2(1 + x) without losing the digits of a small x, and 1 / (1 + x), at the price of one division.
template <typename T>
inline Vec<T> log2_1p(Vec<T> x, Vec<T>& reciprocal) {
  const Vec<T> u = x + 1;
  Vec<T> k, scale;
  split<T>(u, k, scale);
  const Vec<T> f = x * scale + (scale - 1);
  const Vec<T> g = f + 2;
  const Vec<T> both = 1 / (u * g);
  reciprocal = both * g;
  return log2_from<T>(f * (both * u), k);
}

// ln(2)^n / n!, the coefficients of 2^x.
constexpr double exp2_coefficient(int n) { return n == 0 ? 1.0 : exp2_coefficient(n - 1) * M_LN2 / n; }

// 2^x for x from Simd<T>::least_log2, below which it would be subnormal; anything for less.
template <typename T>
inline Vec<T> exp2(Vec<T> x) {
  constexpr int bits = Simd<T>::mantissa_bits;
  // adding 1.5 · 2^bits rounds to whole numbers, which then stand in the low bits
  constexpr T rounding = static_cast<T>(3) * (typename Simd<T>::Int(1) << (bits - 1));
  const Vec<T> shifted = x + rounding;
  const Vec<T> r = x - (shifted - rounding);
  Vec<T> series = static_cast<T>(exp2_coefficient(Simd<T>::exp_terms)) + Vec<T>{};
  for (int i = Simd<T>::exp_terms - 1; i >= 0; --i) series = series * r + static_cast<T>(exp2_coefficient(i));
  return (Vec<T>)((IntVec<T>)series + ((IntVec<T>)shifted << bits));
}

// ------------------------------------------------------------------------------------------- the problem

template <typename T>
struct Problem {
  int64_t rows, n;
  const double* alpha;  // row r has α[(r / repeat) % alphas]
  int64_t alphas, repeat;

  double eps(int64_t row) const { return alpha[(row / repeat) % alphas] - 1; }
};

// What the caller is told of the α's.
enum Alphas : int64_t { out_of_range = -1, all_above_one = 0, some_at_one = 1 };

inline Alphas check(const double* alpha, int64_t alphas) {
  Alphas found = all_above_one;
  for (int64_t i = 0; i < alphas; ++i) {
    if (!(alpha[i] >= 1 && alpha[i] < std::numeric_limits<double>::infinity())) return out_of_range;
    if (alpha[i] == 1) found = some_at_one;
  }
  return found;
}

// What hides keys from queries, where row r is query r % queries of sentence r / (heads · queries).
template <typename T>
struct Masks {
  const uint8_t* padding;  // (sentences, n): 1 where a key is padding; or null
  const T* added;          // (queries, n): added to the scores; or null
  bool causal;             // query t sees keys 0 … t
  int64_t heads, queries;
};

// ------------------------------------------------------------------------------------------------ forward

// The greatest of a row, or NaN if there is one in it.
template <typename T>
inline T greatest(const T* row, int64_t n) {
  constexpr int lanes = Simd<T>::lanes;
  T top = row[0], broken = 0;
  int64_t j = 0;
  if (n >= lanes) {
    Vec<T> tops = load(row), zeros = {};
    for (; j + lanes <= n; j += lanes) {
      const Vec<T> z = load(row + j);
      tops = maximum(z, tops);
      zeros += z != z ? 1 + Vec<T>{} : Vec<T>{};
    }
    for (int i = 0; i < lanes; ++i) top = tops[i] > top ? tops[i] : top;
    broken = sum<T>(zeros);
  }
  for (; j < n; ++j) {
    top = row[j] > top ? row[j] : top;
    broken += row[j] != row[j];
  }
  return broken > 0 ? std::numeric_limits<T>::quiet_NaN() : top;
}

// Of n scores at their places (null: 0, 1, …), keep those z with ε (z − shift) > −1, as z − shift; returns how many.
// The result may take the place of what it comes from; room for a whole vector beyond it is needed.
template <typename T>
inline int64_t compress(const T* from, const int32_t* places, int64_t n, T shift, T eps, T* kept, int32_t* kept_places) {
  int64_t count = 0;
  for (int64_t j = 0; j < n; ++j) {
    const T z = from[j] - shift;
    const int32_t place = places == nullptr ? static_cast<int32_t>(j) : places[j];
    kept[count] = z;
    kept_places[count] = place;
    count += eps * z > -1;
  }
  return count;
}

#ifdef __AVX512F__
template <>
inline int64_t compress(const float* from, const int32_t* places, int64_t n, float shift, float eps, float* kept,
                        int32_t* kept_places) {
  const __m512 shifts = _mm512_set1_ps(shift), all_eps = _mm512_set1_ps(eps), least = _mm512_set1_ps(-1);
  __m512i place = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  int64_t count = 0;
  for (int64_t j = 0; j < n; j += 16) {
    const __mmask16 there = n - j < 16 ? (1u << (n - j)) - 1 : 0xffff;
    const __m512 z = _mm512_sub_ps(_mm512_maskz_loadu_ps(there, from + j), shifts);
    if (places != nullptr) place = _mm512_maskz_loadu_epi32(there, places + j);
    const __mmask16 keep = _mm512_mask_cmp_ps_mask(there, _mm512_mul_ps(z, all_eps), least, _CMP_GT_OQ);
    _mm512_storeu_ps(kept + count, _mm512_maskz_compress_ps(keep, z));
    _mm512_storeu_si512(kept_places + count, _mm512_maskz_compress_epi32(keep, place));
    count += __builtin_popcount(keep);
    if (places == nullptr) place = _mm512_add_epi32(place, _mm512_set1_epi32(16));
  }
  return count;
}
#endif

// A λ from the left of the root, for scores of which the greatest is 0: two steps of Newton's method for an α at
// which they cost no more than a pass over memory. λ falls as α grows, so that of sparsemax is below all up to 2.
template <typename T>
inline T cheap_lambda(const T* z, int64_t n, T eps) {
  constexpr int lanes = Simd<T>::lanes;
  const bool linear = eps > T(0.5);
  const T near_eps = linear ? T(1) : T(0.5);
  T lambda = 0;
  for (int step = 0; step < 2; ++step) {
    Vec<T> masses = {}, slopes = {};
    for (int64_t j = 0; j < n; j += lanes) {
      const Vec<T> x = near_eps * (load(z + j, n - j, T(-9)) - lambda);
      const Vec<T> u = maximum(x + 1, Vec<T>{});
      masses += linear ? u : u * u;
      slopes += linear ? (u > 0 ? 1 + Vec<T>{} : Vec<T>{}) : u;
    }
    const T mass = sum<T>(masses), slope = near_eps * sum<T>(slopes);
    lambda += ((linear ? mass - 1 : mass - std::sqrt(mass)) / slope);
  }
  return lambda;
}

// p and w at u; ε is 1 or ½ in all lanes, or any.
template <typename T>
struct Sparsemax {
  void operator()(Vec<T> x, Vec<T>& p, Vec<T>& w) const {
    p = maximum(x + 1, Vec<T>{});
    w = p > 0 ? 1 + Vec<T>{} : Vec<T>{};
  }
};

template <typename T>
struct Entmax15 {
  void operator()(Vec<T> x, Vec<T>& p, Vec<T>& w) const {
    w = maximum(x + 1, Vec<T>{});
    p = w * w;
  }
};

template <typename T>
struct AnyAlpha {
  Vec<T> reciprocal_eps;
  Vec<T> least;  // the x for which p is the least normal number

  explicit AnyAlpha(Vec<T> eps) : reciprocal_eps(1 / eps) {
    for (int i = 0; i < Simd<T>::lanes; ++i) least[i] = std::expm1(static_cast<T>(Simd<T>::least_log2 * M_LN2) * eps[i]);
  }

  void operator()(Vec<T> x, Vec<T>& p, Vec<T>& w) const {
    Vec<T> reciprocal;
    const Vec<T> value = exp2<T>(log2_1p<T>(x, reciprocal) * reciprocal_eps);
    p = x > least ? value : Vec<T>{};
    w = x > least ? value * reciprocal : Vec<T>{};
  }
};

// A vector's worth of rows, each with the scores that may get weight, less the greatest, in a lane of its own.
template <typename T>
class Block {
 public:
  static constexpr int lanes = Simd<T>::lanes;

  static constexpr T least_eps_to_refine = 0.2;  // for less, hardly a score falls out of reach

  explicit Block(int64_t n)
      : row_(new T[n]),
        kept_(new T[n + lanes]),
        places_(new int32_t[n + lanes]),
        z_(new Vec<T>[n + 1]),
        p_(new Vec<T>[n + 1]),
        w_(new Vec<T>[n + 1]),
        index_(new int32_t[(n + 1) * lanes]) {}

  // Weights of rows first … first + lanes − 1, or fewer at the end.
  void solve(const Problem<T>& problem, const Masks<T>& masks, const T* scores, T* weights, int64_t first) {
    const int64_t rows = std::min<int64_t>(lanes, problem.rows - first);
    columns_ = 1;
    for (int lane = 0; lane < lanes; ++lane) {
      const bool there = lane < rows;
      // ε = 0 is met to the last bit by this, and can be divided by
      eps_[lane] = there ? static_cast<T>(std::max(problem.eps(first + lane), 1e-20)) : T(1);
      if (there) {
        const T* row = visible(problem, masks, scores + (first + lane) * problem.n, first + lane);
        gather(row, lane);
      } else {
        keep_none(lane);
      }
    }
    fill_up();
    solve_lanes();
    for (int lane = 0; lane < rows; ++lane) scatter(weights + (first + lane) * problem.n, problem.n, lane);
  }

 private:
  // The part of a row that its query may see, with −inf for what is hidden in it; sets seen_.
  const T* visible(const Problem<T>& problem, const Masks<T>& masks, const T* row, int64_t number) {
    const int64_t query = number % masks.queries;
    seen_ = masks.causal ? std::min(query + 1, problem.n) : problem.n;
    if (masks.added == nullptr && masks.padding == nullptr) return row;
    constexpr T hidden = -std::numeric_limits<T>::infinity();
    std::copy(row, row + seen_, row_.get());
    if (masks.added != nullptr) {
      const T* added = masks.added + query * problem.n;
      for (int64_t j = 0; j < seen_; ++j) row_[j] += added[j];
    }
    if (masks.padding != nullptr) {
      const uint8_t* padding = masks.padding + number / (masks.heads * masks.queries) * problem.n;
      for (int64_t j = 0; j < seen_; ++j) row_[j] = padding[j] ? hidden : row_[j];
    }
    return row_.get();
  }

  // Keep what is within 1/ε of the greatest score: at λ = max z, and λ only grows, the rest gets no weight.
  void gather(const T* row, int lane) {
    const T top = greatest(row, seen_);
    broken_[lane] = top != top || top == std::numeric_limits<T>::infinity();
    if (broken_[lane] || top == -std::numeric_limits<T>::infinity()) return keep_none(lane);
    T* kept = kept_.get();
    int32_t* places = places_.get();
    const T eps = eps_[lane];
    int64_t count = compress<T>(row, nullptr, seen_, top, eps, kept, places);
    if (count > 2 * lanes && eps > least_eps_to_refine && eps <= 1) {
      const T lambda = cheap_lambda(kept, count, eps);
      count = compress<T>(kept, places, count, lambda, eps, kept, places);
    }
    T* z = reinterpret_cast<T*>(z_.get()) + lane;
    int32_t* index = index_.get() + lane;
    for (int64_t j = 0; j < count; ++j) {
      z[j * lanes] = kept[j];
      index[j * lanes] = places[j];
    }
    count_[lane] = count;
    columns_ = std::max(columns_, count);
  }

  void keep_none(int lane) {
    count_[lane] = 0;
    z_[0][lane] = 0;  // a row of one score, so that the lane is done at once
  }

  void fill_up() {
    T* z = reinterpret_cast<T*>(z_.get());
    for (int lane = 0; lane < lanes; ++lane) {
      const T out_of_reach = -2 / eps_[lane];
      for (int64_t j = std::max<int64_t>(count_[lane], 1); j < columns_; ++j) z[j * lanes + lane] = out_of_reach;
    }
  }

  void solve_lanes() {
    if (any<T>(eps_ > 1)) return bisect(AnyAlpha<T>(eps_));
    if (!any<T>(eps_ != T(1))) return newton(Sparsemax<T>{});
    if (!any<T>(eps_ != T(0.5))) return newton(Entmax15<T>{});
    newton(AnyAlpha<T>(eps_));
  }

  template <typename Power>
  void evaluate(const Power& power, Vec<T> lambda, Vec<T>& mass, Vec<T>& slope) {
    mass = slope = Vec<T>{};
    for (int64_t start = 0; start < columns_; start += 64) {  // sums of sums: rounding grows with their lengths
      const int64_t end = std::min<int64_t>(start + 64, columns_);
      Vec<T> some_mass = {}, some_slope = {};
      for (int64_t j = start; j < end; ++j) {
        power(eps_ * (z_[j] - lambda), p_[j], w_[j]);
        some_mass += p_[j];
        some_slope += w_[j];
      }
      mass += some_mass;
      slope += some_slope;
    }
  }

  // Newton on ‖u‖ = 1 from λ = max z, as in reference.py, but the last step is not taken: a λ off by δ is made
  // good by p − w δ, which is off by no more than δ² for ε ≤ ½, where p has a second derivative, and δ^(1/ε) beyond.
  template <typename Power>
  void newton(const Power& power) {
    constexpr bool single = std::is_same<T, float>::value;
    const Vec<T> close = single ? Vec<T>(eps_ > T(0.5) ? T(3e-7) + Vec<T>{} : T(1e-4) + Vec<T>{}) : T(1e-13) + Vec<T>{};
    Vec<T> lambda = {}, mass, slope, delta;
    for (int step = 0;; ++step) {
      evaluate(power, lambda, mass, slope);
      delta = (mass - 1) / slope;
      // 2 to 5 steps do; the bound only stops rows that jump between neighbouring floats
      if (step == 40 || !any<T>(maximum(delta, -delta) > close)) break;
      lambda += newton_step(mass, slope);
    }
    for (int64_t j = 0; j < columns_; ++j) p_[j] = maximum(p_[j] - w_[j] * delta, Vec<T>{});
  }

  // (S − S^(1−ε)) / (εD) = S log S φ(ε log S) / D with φ(t) = (1 − e^−t) / t
  Vec<T> newton_step(Vec<T> mass, Vec<T> slope) {
    const Vec<T> log_mass = log2<T>(mass) * static_cast<T>(M_LN2);
    const Vec<T> t = eps_ * log_mass;
    const Vec<T> small = 1 - t * (T(0.5) - t * T(1.0 / 6));
    const Vec<T> phi = maximum(t, -t) < T(0.01) ? small : (1 - exp2<T>(t * static_cast<T>(-M_LOG2E))) / t;
    return mass * log_mass * phi / slope;
  }

  // For ε > 1, where ‖u‖ is no norm: λ from its bracket [0, (1 − n^−ε) / ε].
  void bisect(const AnyAlpha<T>& power) {
    Vec<T> low = {}, mass, slope;
    Vec<T> width = (1 - exp2<T>(-eps_ * std::log2(static_cast<T>(columns_)))) * power.reciprocal_eps;
    for (int step = 0; step < (std::is_same<T, float>::value ? 30 : 60); ++step) {
      width *= T(0.5);
      evaluate(power, low + width, mass, slope);
      low = mass >= 1 ? low + width : low;
    }
    evaluate(power, low, mass, slope);
    for (int64_t j = 0; j < columns_; ++j) p_[j] /= mass;
  }

  void scatter(T* weights, int64_t n, int lane) {
    const T rest = broken_[lane] ? std::numeric_limits<T>::quiet_NaN() : T(0);
    if (count_[lane] < n) std::fill(weights, weights + n, rest);
    const T* p = reinterpret_cast<const T*>(p_.get()) + lane;
    const int32_t* index = index_.get() + lane;
    for (int64_t j = 0; j < count_[lane]; ++j) weights[index[j * lanes]] = p[j * lanes];
  }

  std::unique_ptr<T[]> row_, kept_;
  std::unique_ptr<int32_t[]> places_;
  std::unique_ptr<Vec<T>[]> z_, p_, w_;
  std::unique_ptr<int32_t[]> index_;
  Vec<T> eps_;
  int64_t seen_ = 0, columns_ = 0;
  int64_t count_[lanes];
  bool broken_[lanes] = {};
};

// ----------------------------------------------------------------------------------------------- backward

constexpr double inverse_factorial(int n) { return n < 2 ? 1.0 : inverse_factorial(n - 1) / n; }

// (e^s − 1 − s) / s² for 0 ≤ s ≤ 1, by its series of positive terms.
template <typename T>
inline Vec<T> phi2(Vec<T> s) {
  Vec<T> series = static_cast<T>(inverse_factorial(Simd<T>::phi_terms + 2)) + Vec<T>{};
  for (int i = Simd<T>::phi_terms - 1; i >= 0; --i) series = series * s + static_cast<T>(inverse_factorial(i + 2));
  return series;
}

// Gradients of a row; returns what it adds to the gradient of α. See entmax_backward in reference.py.
template <typename T, bool need_alpha>
double backward_row(const T* weights, const T* grad, T* grad_scores, T* terms, int64_t n, T eps) {
  constexpr int lanes = Simd<T>::lanes;
  const T reciprocal_square = 1 / (eps * eps);
  const Vec<T> tiny = std::numeric_limits<T>::min() + Vec<T>{};
  Vec<T> total = {}, product = {};
  for (int64_t j = 0; j < n; j += lanes) {
    const Vec<T> p = load(weights + j, n - j);
    const IntVec<T> support = p > 0;
    Vec<T> w = {}, term = {};
    if (any<T>(support)) {
      if (!need_alpha && eps == 1) {
        w = 1 + w;
      } else if (!need_alpha && eps == T(0.5)) {
        for (int i = 0; i < lanes; ++i) w[i] = std::sqrt(p[i]);
      } else {
        const Vec<T> log2_p = log2<T>(maximum(p, tiny));
        w = exp2<T>((1 - eps) * log2_p);
        if (need_alpha) {
          const Vec<T> log_p = log2_p * static_cast<T>(M_LN2);
          const Vec<T> s = -eps * log_p;
          const Vec<T> near = p * log_p * log_p * phi2<T>(s);
          const Vec<T> far = (w - p - p * s) * reciprocal_square;
          term = support ? (s < 1 ? near : far) : term;
        }
      }
      w = support ? w : Vec<T>{};
      total += w;
      product += w * load(grad + j, n - j);
    }
    store(w, grad_scores + j, n - j);
    if (need_alpha) store(term, terms + j, n - j);
  }
  const T mass = sum<T>(total);
  const T mean = mass > 0 ? sum<T>(product) / mass : mass;  // 0 without any weight; a NaN stays
  Vec<T> grad_alpha = {};
  for (int64_t j = 0; j < n; j += lanes) {
    const Vec<T> centred = load(grad + j, n - j) - mean;
    store<T>(load(grad_scores + j, n - j) * centred, grad_scores + j, n - j);
    if (need_alpha) grad_alpha -= load(terms + j, n - j) * centred;
  }
  return sum<T>(grad_alpha);
}

// About as many numbers as are worth waking a thread for.
constexpr int64_t grain = 16384;

template <typename T>
void forward(const Problem<T>& problem, const Masks<T>& masks, const T* scores, T* weights) {
  constexpr int lanes = Simd<T>::lanes;
  const int64_t blocks = (problem.rows + lanes - 1) / lanes;
  at::parallel_for(0, blocks, grain / (lanes * problem.n) + 1, [&](int64_t begin, int64_t end) {
    Block<T> block(problem.n);
    for (int64_t i = begin; i < end; ++i) block.solve(problem, masks, scores, weights, i * lanes);
  });
}

template <typename T>
void backward(const Problem<T>& problem, const T* weights, const T* grad, T* grad_scores, double* grad_alpha) {
  const int64_t n = problem.n;
  at::parallel_for(0, problem.rows, grain / n + 1, [&](int64_t begin, int64_t end) {
    std::unique_ptr<T[]> terms(grad_alpha != nullptr ? new T[n] : nullptr);
    for (int64_t row = begin; row < end; ++row) {
      const T eps = static_cast<T>(problem.eps(row));
      const int64_t at = row * n;
      if (grad_alpha != nullptr) {
        grad_alpha[row] = backward_row<T, true>(weights + at, grad + at, grad_scores + at, terms.get(), n, eps);
      } else {
        backward_row<T, false>(weights + at, grad + at, grad_scores + at, nullptr, n, eps);
      }
    }
  });
}

}  // namespace

// --------------------------------------------------------------------------------- what cpu.py calls, by ctypes

#define ENTMAX_FOR(T, SUFFIX)                                                                                       \
  extern "C" int64_t entmax_forward_##SUFFIX(const T* scores, T* weights, int64_t rows, int64_t n,                  \
                                             const double* alpha, int64_t alphas, int64_t repeat,                   \
                                             const uint8_t* padding, const T* added, int64_t causal, int64_t heads, \
                                             int64_t queries) {                                                     \
    const Alphas found = check(alpha, alphas);                                                                      \
    if (found != out_of_range && rows > 0) {                                                                        \
      forward<T>({rows, n, alpha, alphas, repeat}, {padding, added, causal != 0, heads, queries}, scores, weights); \
    }                                                                                                               \
    return found;                                                                                                   \
  }                                                                                                                 \
  extern "C" void entmax_backward_##SUFFIX(const T* weights, const T* grad, T* grad_scores, double* grad_alpha,     \
                                           int64_t rows, int64_t n, const double* alpha, int64_t alphas,            \
                                           int64_t repeat) {                                                        \
    backward<T>({rows, n, alpha, alphas, repeat}, weights, grad, grad_scores, grad_alpha);                          \
  }

ENTMAX_FOR(float, float32)
ENTMAX_FOR(double, float64)

// α-entmax of as many rows as a vector has lanes, one row per lane: elementary functions, the solver of the
// forward pass, and the terms of the backward pass.
//
// Notation as in reference.py: ε = α − 1, u = 1 + ε (z − λ), p = u^(1/ε) where u > 0, w = p^(1−ε) = p / u.
//
// The vector types are the vector extension of GCC and Clang, which compiles to the target's instructions. A vector
// fills exactly one register: GCC keeps a wider one in memory and compares and selects its entries one by one.

#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>

#ifdef __AVX2__  // also where there is AVX-512
#include <immintrin.h>
#endif

namespace entmax {

#define ENTMAX_INLINE inline __attribute__((always_inline))

// ---------------------------------------------------------------------------------------------- vectors

#if defined(__AVX512F__)
constexpr int register_bytes = 64;
#elif defined(__AVX2__)
constexpr int register_bytes = 32;
#else
constexpr int register_bytes = 16;
#endif

template <typename T>
struct Simd;

template <>
struct Simd<float> {
  static constexpr int lanes = register_bytes / sizeof(float);
  static constexpr int mantissa_bits = 23;
  static constexpr int log_terms = 4;        // of the atanh series; the error is 2e-9 for |s| ≤ 0.172
  static constexpr int exp_terms = 7;        // of the exp series; the error is 5e-9 for |r| ≤ 0.347
  static constexpr int phi_terms = 10;       // of the phi2 series; the error is 2e-9 for s ≤ 1
  static constexpr float least_log2 = -126;  // of a normal number
  static constexpr float tolerance = 3e-8;  // error of a weight with which Newton's method may stop
  static constexpr float closest = 3e-7, farthest = 5e-3;  // of λ: up to closest it stops, above farthest never
  typedef int32_t Int;
  typedef float Vec __attribute__((vector_size(register_bytes)));
  typedef int32_t IntVec __attribute__((vector_size(register_bytes)));
};

template <>
struct Simd<double> {
  static constexpr int lanes = register_bytes / sizeof(double);
  static constexpr int mantissa_bits = 52;
  static constexpr int log_terms = 10;
  static constexpr int exp_terms = 13;
  static constexpr int phi_terms = 18;
  static constexpr double least_log2 = -1022;
  static constexpr double tolerance = 1e-17;
  static constexpr double closest = 1e-13, farthest = 2e-6;
  typedef int64_t Int;
  typedef double Vec __attribute__((vector_size(register_bytes)));
  typedef int64_t IntVec __attribute__((vector_size(register_bytes)));
};

template <typename T>
using Vec = typename Simd<T>::Vec;
template <typename T>
using IntVec = typename Simd<T>::IntVec;

template <typename T>
ENTMAX_INLINE Vec<T> load(const T* from) {
  Vec<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// Load `count` entries and fill the others with `rest`; all entries if `count` is large enough.
template <typename T>
ENTMAX_INLINE Vec<T> load(const T* from, int64_t count, T rest = 0) {
  if (count >= Simd<T>::lanes) return load(from);
  Vec<T> v = rest + Vec<T>{};
#ifdef __AVX512F__
  if (std::is_same<T, float>::value) return (Vec<T>)_mm512_mask_loadu_ps((__m512)v, (1u << count) - 1, from);
#endif
  for (int64_t i = 0; i < count; ++i) v[i] = from[i];
  return v;
}

template <typename T>
ENTMAX_INLINE void store(Vec<T> v, T* to, int64_t count) {
  if (count >= Simd<T>::lanes) {
    std::memcpy(to, &v, sizeof v);
    return;
  }
#ifdef __AVX512F__
  if (std::is_same<T, float>::value) return _mm512_mask_storeu_ps(to, (1u << count) - 1, (__m512)v);
#endif
  for (int64_t i = 0; i < count; ++i) to[i] = v[i];
}

template <typename V>
ENTMAX_INLINE V maximum(V a, V b) {
  return a > b ? a : b;
}

template <typename V>
ENTMAX_INLINE V minimum(V a, V b) {
  return a < b ? a : b;
}

template <typename T>
ENTMAX_INLINE T sum(Vec<T> v) {
  T parts[Simd<T>::lanes];
  std::memcpy(parts, &v, sizeof v);
  for (int width = Simd<T>::lanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) parts[i] += parts[i + width];
  }
  return parts[0];
}

template <typename V>
ENTMAX_INLINE V root(V v) {
  V roots;
  for (size_t i = 0; i < sizeof v / sizeof v[0]; ++i) roots[i] = std::sqrt(v[i]);
  return roots;
}

template <typename T>
ENTMAX_INLINE bool any(IntVec<T> mask) {
#ifdef __AVX512F__
  return _mm512_test_epi64_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX2__)
  return !_mm256_testz_si256((__m256i)mask, (__m256i)mask);
#else
  uint64_t parts[2];
  std::memcpy(parts, &mask, sizeof mask);
  return (parts[0] | parts[1]) != 0;
#endif
}

// A bit for each lane of a mask, the first lane's the lowest.
template <typename T>
ENTMAX_INLINE uint32_t bits(IntVec<T> mask) {
#if defined(__AVX512F__)
  if (std::is_same<T, float>::value) return _mm512_movepi32_mask((__m512i)mask);
  return _mm512_movepi64_mask((__m512i)mask);
#elif defined(__AVX2__)
  if (std::is_same<T, float>::value) return _mm256_movemask_ps((__m256)mask);
  return _mm256_movemask_pd((__m256d)mask);
#else
  uint32_t bits = 0;
  for (int lane = 0; lane < Simd<T>::lanes; ++lane) bits |= static_cast<uint32_t>(mask[lane] != 0) << lane;
  return bits;
#endif
}

// ---------------------------------------------------------------------------------- elementary functions

// For normal u > 0 with u = 2^k m and m in [√½, √2): k and 2^−k.
template <typename T>
ENTMAX_INLINE void split(Vec<T> u, Vec<T>& k, Vec<T>& scale) {
  constexpr int bits = Simd<T>::mantissa_bits;
  constexpr typename Simd<T>::Int bias = std::numeric_limits<T>::max_exponent - 1;
  const Vec<T> root_half = static_cast<T>(M_SQRT1_2) + Vec<T>{};
  const IntVec<T> exponent = ((IntVec<T>)u - (IntVec<T>)root_half) >> bits;
  k = __builtin_convertvector(exponent, Vec<T>);
  scale = (Vec<T>)((bias - exponent) << bits);
}

// log2((1 + f) 2^k) from s = f / (2 + f), by log(1 + f) = 2 atanh(s) = 2 (s + s³/3 + s⁵/5 + …).
template <typename T>
ENTMAX_INLINE Vec<T> log2_from(Vec<T> s, Vec<T> k) {
  const Vec<T> square = s * s;
  Vec<T> series = static_cast<T>(2 * M_LOG2E / (2 * Simd<T>::log_terms + 1)) + Vec<T>{};
  for (int i = Simd<T>::log_terms - 1; i >= 0; --i) {
    series = series * square + static_cast<T>(2 * M_LOG2E / (2 * i + 1));
  }
  return s * series + k;
}

template <typename T>
ENTMAX_INLINE Vec<T> log2(Vec<T> u) {
  Vec<T> k, scale;
  split<T>(u, k, scale);
  const Vec<T> f = u * scale - 1;
  return log2_from<T>(f / (f + 2), k);
}

// log2(1 + x), accurate for small x, and 1 / (1 + x), with a single division.
template <typename T>
ENTMAX_INLINE Vec<T> log2_1p(Vec<T> x, Vec<T>& reciprocal) {
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
constexpr auto exp2_coefficients = [] {
  std::array<double, 14> coefficients{1.0};
  for (int n = 1; n < 14; ++n) coefficients[n] = coefficients[n - 1] * M_LN2 / n;
  return coefficients;
}();

// 2^x for x ≥ Simd<T>::least_log2; unspecified below, where the result would be subnormal.
template <typename T>
ENTMAX_INLINE Vec<T> exp2(Vec<T> x) {
  constexpr int bits = Simd<T>::mantissa_bits;
  // adding 1.5 · 2^bits rounds to an integer, which is then in the low bits
  constexpr T rounding = static_cast<T>(3) * (typename Simd<T>::Int(1) << (bits - 1));
  const Vec<T> shifted = x + rounding;
  const Vec<T> r = x - (shifted - rounding);
  Vec<T> series = static_cast<T>(exp2_coefficients[Simd<T>::exp_terms]) + Vec<T>{};
  for (int i = Simd<T>::exp_terms - 1; i >= 0; --i) series = series * r + static_cast<T>(exp2_coefficients[i]);
  return (Vec<T>)((IntVec<T>)series + ((IntVec<T>)shifted << bits));
}

// 1 − e^−t, accurate for small t.
template <typename T>
ENTMAX_INLINE Vec<T> one_minus_exp(Vec<T> t) {
  const Vec<T> near = t * (1 - t * (T(0.5) - t * (T(1.0 / 6) - t * T(1.0 / 24))));
  const Vec<T> power = maximum(t * static_cast<T>(-M_LOG2E), Simd<T>::least_log2 + Vec<T>{});
  return maximum(t, -t) < T(0.01) ? near : 1 - exp2<T>(power);
}

// --------------------------------------------------------------------------------------------------- forward

// Result of checking the α's, returned to the caller.
enum Alphas : int64_t { out_of_range = -1, all_above_one = 0, some_at_one = 1 };

inline Alphas check(const double* alpha, int64_t alphas) {
  Alphas range = all_above_one;
  for (int64_t i = 0; i < alphas; ++i) {
    if (!(alpha[i] >= 1 && alpha[i] < std::numeric_limits<double>::infinity())) return out_of_range;
    if (alpha[i] == 1) range = some_at_one;
  }
  return range;
}

// ε as a divisor: 0 is replaced by a value so small that results equal those of the limit ε → 0.
template <typename T>
inline T never_zero(double eps) {
  return static_cast<T>(std::max(eps, 1e-20));
}

// p, w and h = w / u at u = 1 + x, for lanes that are all sparsemax (ε = 1), all 1.5-entmax (ε = ½), or of any α (after
// prepare()). corrected() computes p for a λ that is greater by a small δ, from p and w:
// p − w δ + h δ² (1 − ε) / 2, but 0 for u ≤ ε δ.
template <typename T>
struct Sparsemax {
  ENTMAX_INLINE void prepare(Vec<T>, Vec<T>&, Vec<T>&) const {}
  ENTMAX_INLINE void operator()(Vec<T> x, Vec<T>& p, Vec<T>& w, Vec<T>& h) const {
    p = maximum(x + 1, Vec<T>{});
    w = p > 0 ? 1 + Vec<T>{} : Vec<T>{};
    h = Vec<T>{};  // its factor 1 − ε is 0
  }
  ENTMAX_INLINE Vec<T> corrected(Vec<T> p, Vec<T> w, Vec<T> delta) const { return maximum(p - w * delta, Vec<T>{}); }
};

template <typename T>
struct Entmax15 {
  ENTMAX_INLINE void prepare(Vec<T>, Vec<T>&, Vec<T>&) const {}
  ENTMAX_INLINE void operator()(Vec<T> x, Vec<T>& p, Vec<T>& w, Vec<T>& h) const {
    w = maximum(x + 1, Vec<T>{});
    p = w * w;
    h = w > 0 ? 1 + Vec<T>{} : Vec<T>{};
  }
  ENTMAX_INLINE Vec<T> corrected(Vec<T> p, Vec<T> w, Vec<T> delta) const {
    const Vec<T> u = w > 0 ? maximum(w - T(0.5) * delta, Vec<T>{}) : w;
    return u * u;
  }
};

template <typename T>
struct AnyAlpha {
  Vec<T> eps, reciprocal_eps;
  Vec<T> second;  // (1 − ε) / 2; 0 for ε > ½, where h is not bounded
  bool curved;    // whether second is not 0 in some lane
  Vec<T> least;   // the x for which p is the least normal number

  explicit AnyAlpha(Vec<T> eps)
      : eps(eps),
        reciprocal_eps(1 / eps),
        second(eps > T(0.5) ? Vec<T>{} : T(0.5) * (1 - eps)),
        curved(any<T>(second != 0)),
        least(-one_minus_exp<T>(eps * static_cast<T>(-Simd<T>::least_log2 * M_LN2))) {}

  // Puts log2(u) and 1 / u into p and w, in a loop of its own over many scores: a whole weight is such a long chain of
  // dependent operations that a processor overlaps only two or three of these chains.
  ENTMAX_INLINE void prepare(Vec<T> x, Vec<T>& p, Vec<T>& w) const { p = log2_1p<T>(x, w); }
  ENTMAX_INLINE void operator()(Vec<T> x, Vec<T>& p, Vec<T>& w, Vec<T>& h) const {
    const Vec<T> reciprocal = w, value = exp2<T>(p * reciprocal_eps), slope = value * reciprocal;
    p = x > least ? value : Vec<T>{};
    w = x > least ? slope : Vec<T>{};
    h = x > least ? slope * reciprocal : Vec<T>{};
  }
  ENTMAX_INLINE Vec<T> corrected(Vec<T> p, Vec<T> w, Vec<T> delta) const {
    const Vec<T> first = w * delta;
    Vec<T> weight = p - first;
    if (curved) weight += second * first * first / maximum(p, std::numeric_limits<T>::min() + Vec<T>{});
    return p > eps * first ? maximum(weight, Vec<T>{}) : Vec<T>{};
  }
};

// How p and w are computed, and λ found.
enum class Power { sparsemax, entmax15, any_alpha, above_two };

// The Power that handles every one of these α's.
inline Power power_of(const double* alpha, int64_t alphas) {
  const double low = *std::min_element(alpha, alpha + alphas), high = *std::max_element(alpha, alpha + alphas);
  if (high > 2) return Power::above_two;
  if (low == 2) return Power::sparsemax;
  return low == 1.5 && high == 1.5 ? Power::entmax15 : Power::any_alpha;
}

// Whether the rows in a vector stop together, which makes most of them more accurate, or each alone, so that a row's
// result does not depend on the others.
enum class Stop { together, alone };

// One row of scores per lane, shifted so that its maximum is at most 0 and its λ at least 0; scores below −1/ε,
// including −inf, get no weight.
template <typename T>
class Lanes {
 public:
  static constexpr int lanes = Simd<T>::lanes;

  explicit Lanes(int64_t n, Stop stop = Stop::together)
      : z(new Vec<T>[n]), p(new Vec<T>[n]), w_(new Vec<T>[n]), stop_(stop) {}

  // Enough to recover the weights of a row from its scores: λ, and a correction, because λ is not exact.
  struct Solution {
    Vec<T> lambda, rest;  // rest: the last step, not taken; for ε > 1 the sum of the weights
  };

  // Compute the weights p of the first `columns` scores z of each row; a lane without a row must have z[0] = 0.
  // Newton's method starts from `lambda`, which must not exceed the λ of its row.
  Solution solve(Vec<T> eps, int64_t columns, Vec<T> lambda = Vec<T>{}) {
    return solve(eps, columns, power_of(eps), lambda);
  }

  // The same with a given `power`, chosen for these rows or for more.
  Solution solve(Vec<T> eps, int64_t columns, Power power, Vec<T> lambda = Vec<T>{}) {
    eps_ = eps;
    columns_ = columns;
    power_ = power;
    Solution solution;
    with_power([&](const auto& power) {
      solution = bisected() ? bisect(power) : newton(power, lambda);
      finish(power, solution);
    });
    return solution;
  }

  // Compute bitwise the same weights again, from the solution.
  void restore(Vec<T> eps, int64_t columns, const Solution& solution) {
    eps_ = eps;
    columns_ = columns;
    power_ = power_of(eps);
    with_power([&](const auto& power) {
      evaluate(power, solution.lambda);
      finish(power, solution);
    });
  }

  std::unique_ptr<Vec<T>[]> z, p;

 private:
  // Sums over a row: S of p, D of w = −p′ and E of h = p″ / (1 − ε), derivatives with respect to λ.
  struct Sums {
    Vec<T> mass, slope, bend;
  };

  template <typename Power>
  Sums evaluate(const Power& power, Vec<T> lambda) {
    Sums sums = {};
    for (int64_t start = 0; start < columns_; start += 64) {  // pairwise sums limit rounding errors
      const int64_t end = std::min<int64_t>(start + 64, columns_);
      Sums some = {};
      for (int64_t j = start; j < end; ++j) power.prepare(eps_ * (z[j] - lambda), p[j], w_[j]);
      for (int64_t j = start; j < end; ++j) {
        Vec<T> weight = p[j], w = w_[j], h;
        power(eps_ * (z[j] - lambda), weight, w, h);
        some.mass += p[j] = weight;
        some.slope += w_[j] = w;
        some.bend += h;
      }
      sums.mass += some.mass;
      sums.slope += some.slope;
      sums.bend += some.bend;
    }
    return sums;
  }

  static Power power_of(Vec<T> eps) {
    if (any<T>(eps > 1)) return Power::above_two;
    if (!any<T>(eps != T(1))) return Power::sparsemax;
    return any<T>(eps != T(0.5)) ? Power::any_alpha : Power::entmax15;
  }

  bool bisected() const { return power_ == Power::above_two; }

  template <typename Function>
  void with_power(const Function& function) {
    if (power_ == Power::sparsemax) return function(Sparsemax<T>{});
    if (power_ == Power::entmax15) return function(Entmax15<T>{});
    function(AnyAlpha<T>(eps_));
  }

  // Newton on ‖u‖ = 1 from the left of λ, as in reference.py, but with Halley's correction for the second derivative.
  // A step of Newton's own method, from either side, never leads above λ, so its end bounds λ from below; without that
  // bound, rows with a score at the very edge of the support would oscillate for ever. The last step δ is not taken:
  // finish() corrects for it.
  template <typename Power>
  Solution newton(const Power& power, Vec<T> lambda) {
    const Vec<T> close = close_enough();
    Vec<T> safe = lambda;
    for (int step = 0;; ++step) {
      const Sums sums = evaluate(power, lambda);
      const Vec<T> delta = (sums.mass - 1) / sums.slope;
      const IntVec<T> far = maximum(delta, -delta) > close;
      // 2 to 4 steps suffice; the bound stops rows that alternate between neighbouring floats
      if (step == 40 || !any<T>(far)) {
        const Vec<T> second = eps_ > T(0.5) ? Vec<T>{} : T(0.5) * (1 - eps_) * sums.bend / sums.slope;
        return {lambda, delta + second * delta * delta};
      }
      const Vec<T> taken = newton_step(sums);
      // F″ / −F′ of F = ‖u‖ − 1, which is convex. A step is at most twice Newton's; if it was too long, go back to safe
      const Vec<T> bend = (1 - eps_) * (sums.bend / sums.slope - sums.slope / sums.mass);
      const Vec<T> divisor = maximum(1 - T(0.5) * taken * bend, T(0.5) + Vec<T>{});
      const Vec<T> next = sums.mass < T(0.5) ? safe : maximum(safe, lambda + taken / divisor);
      safe = maximum(safe, lambda + taken);
      lambda = stop_ == Stop::alone ? (far ? next : lambda) : next;
    }
  }

  // Error δ of λ at which a weight, corrected by finish(), is off by no more than the tolerance. The greatest errors,
  // (ε δ)^(1/ε), are those of weights at the edge of the support.
  Vec<T> close_enough() const {
    const Vec<T> close = exp2<T>(eps_ * static_cast<T>(std::log2(Simd<T>::tolerance))) / eps_;
    return maximum(minimum(close, Simd<T>::farthest + Vec<T>{}), Simd<T>::closest + Vec<T>{});
  }

  // (S − S^(1−ε)) / (εD)
  Vec<T> newton_step(const Sums& sums) {
    const Vec<T> log_mass = log2<T>(sums.mass) * static_cast<T>(M_LN2);
    return sums.mass * one_minus_exp<T>(eps_ * log_mass) / (eps_ * sums.slope);
  }

  // For ε > 1, where ‖u‖ is no norm: bisection of [0, (1 − n^−ε) / ε].
  template <typename Power>
  Solution bisect(const Power& power) {
    Vec<T> low = {};
    Vec<T> width = one_minus_exp<T>(eps_ * std::log(static_cast<T>(columns_))) / eps_;
    for (int step = 0; step < (std::is_same<T, float>::value ? 30 : 60); ++step) {
      width *= T(0.5);
      low = evaluate(power, low + width).mass >= 1 ? low + width : low;
    }
    return {low, evaluate(power, low).mass};
  }

  template <typename Power>
  void finish(const Power& power, const Solution& solution) {
    if (bisected()) {
      for (int64_t j = 0; j < columns_; ++j) p[j] /= solution.rest;
      return;
    }
    for (int64_t j = 0; j < columns_; ++j) p[j] = power.corrected(p[j], w_[j], solution.rest);
  }

  std::unique_ptr<Vec<T>[]> w_;
  Stop stop_;
  Vec<T> eps_;
  int64_t columns_ = 0;
  Power power_ = Power::any_alpha;
};

// -------------------------------------------------------------------------------------------------- backward

constexpr auto inverse_factorials = [] {
  std::array<double, 21> factors{1.0, 1.0};
  for (int n = 2; n < 21; ++n) factors[n] = factors[n - 1] / n;
  return factors;
}();

// (e^s − 1 − s) / s² for 0 ≤ s ≤ 1 by its power series, all of whose terms are positive.
template <typename T>
ENTMAX_INLINE Vec<T> phi2(Vec<T> s) {
  Vec<T> series = static_cast<T>(inverse_factorials[Simd<T>::phi_terms + 2]) + Vec<T>{};
  for (int i = Simd<T>::phi_terms - 1; i >= 0; --i) series = series * s + static_cast<T>(inverse_factorials[i + 2]);
  return series;
}

// Terms of the gradients for weights p: w and, if need_alpha, −p r of entmax_backward in reference.py. Where p is
// not positive (0 or NaN), both are p itself, so that NaN propagates.
template <typename T, bool need_alpha>
ENTMAX_INLINE void terms(Vec<T> p, Vec<T> eps, Vec<T> reciprocal_eps, Vec<T>& w, Vec<T>& term) {
  const Vec<T> tiny = std::numeric_limits<T>::min() + Vec<T>{};
  const IntVec<T> support = p > 0;
  const Vec<T> log2_p = log2<T>(maximum(p, tiny));
  w = exp2<T>((1 - eps) * log2_p);
  if (need_alpha) {
    const Vec<T> log_p = log2_p * static_cast<T>(M_LN2);
    const Vec<T> s = -eps * log_p;
    const Vec<T> near = p * log_p * log_p * phi2<T>(s);
    const Vec<T> far = (w - p - p * s) * reciprocal_eps * reciprocal_eps;
    term = support ? (s < 1 ? near : far) : p;
  }
  w = support ? w : p;
}

}  // namespace entmax

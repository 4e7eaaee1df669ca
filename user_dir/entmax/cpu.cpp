// α-entmax over the rows of a matrix of scores, forward and backward, for the CPU; notation as in lanes.h.
//
// Forward: as many rows as a vector has lanes are solved at once, each row in a lane of its own, so that Newton's
// method on λ needs no sum across lanes, and every row has its own α. Before that, each row is cut down to the
// scores that can get any weight at all: mostly few, whatever their number was.
// Backward: one pass over the output gives w and what the gradient of α needs, a second one both gradients.

#include <ATen/Parallel.h>

#include "rows.h"

namespace {

using namespace entmax;

template <typename T>
struct Problem {
  int64_t rows, n;
  const double* alpha;  // row r has α[(r / repeat) % alphas]
  int64_t alphas, repeat;

  double eps(int64_t row) const { return alpha[(row / repeat) % alphas] - 1; }
};

// ------------------------------------------------------------------------------------------------ forward

// Of n scores z at their places (null: 0, 1, …), keep z − shift where ε (z − shift) > −1; returns how many. The
// output may overwrite the input, and needs room for one more vector.
template <typename T>
inline int64_t compress(const T* from, const int32_t* places, int64_t n, T shift, T eps, T* kept,
                        int32_t* kept_places) {
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

// As many rows as a vector has lanes: each lane has the scores of a row that may get weight, less the greatest.
template <typename T>
class Block {
 public:
  static constexpr int lanes = Simd<T>::lanes;
  static constexpr T least_eps_to_refine = 0.2;  // for a smaller ε, hardly any score falls out of reach

  explicit Block(int64_t n)
      : kept_(new T[n + lanes]),
        places_(new int32_t[n + lanes]),
        index_(new int32_t[n * lanes]),
        lanes_(n) {}

  // Weights of rows first … first + lanes − 1, or fewer at the end.
  void solve(const Problem<T>& problem, const T* scores, T* weights, int64_t first) {
    const int64_t rows = std::min<int64_t>(lanes, problem.rows - first);
    columns_ = 1;
    for (int lane = 0; lane < lanes; ++lane) {
      const int64_t row = first + std::min<int64_t>(lane, rows - 1);
      eps_[lane] = never_zero<T>(problem.eps(row));
      if (lane < rows) {
        gather(scores + row * problem.n, problem.n, lane);
      } else {
        keep_none(lane);
      }
    }
    fill_up();
    lanes_.solve(eps_, columns_);
    for (int lane = 0; lane < rows; ++lane) scatter(weights + (first + lane) * problem.n, problem.n, lane);
  }

 private:
  // Keep scores within 1/ε of the greatest: the others get no weight at λ = max z, let alone at a greater λ.
  void gather(const T* row, int64_t n, int lane) {
    const T top = greatest(row, n);
    broken_[lane] = top != top || top == std::numeric_limits<T>::infinity();
    if (broken_[lane] || top == -std::numeric_limits<T>::infinity()) return keep_none(lane);
    T* kept = kept_.get();
    int32_t* places = places_.get();
    const T eps = eps_[lane];
    int64_t count = compress<T>(row, nullptr, n, top, eps, kept, places);
    if (count > 2 * lanes && eps > least_eps_to_refine && eps <= 1) {
      const T lambda = cheap_lambda(kept, count, eps);
      count = compress<T>(kept, places, count, lambda, eps, kept, places);
    }
    T* z = reinterpret_cast<T*>(lanes_.z.get()) + lane;
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
    lanes_.z[0][lane] = 0;  // a row of one score, so that the lane is done at once
  }

  void fill_up() {
    T* z = reinterpret_cast<T*>(lanes_.z.get());
    for (int lane = 0; lane < lanes; ++lane) {
      const T out_of_reach = -2 / eps_[lane];
      for (int64_t j = std::max<int64_t>(count_[lane], 1); j < columns_; ++j) z[j * lanes + lane] = out_of_reach;
    }
  }

  void scatter(T* weights, int64_t n, int lane) {
    const T rest = broken_[lane] ? std::numeric_limits<T>::quiet_NaN() : T(0);
    if (count_[lane] < n) std::fill(weights, weights + n, rest);
    const T* p = reinterpret_cast<const T*>(lanes_.p.get()) + lane;
    const int32_t* index = index_.get() + lane;
    for (int64_t j = 0; j < count_[lane]; ++j) weights[index[j * lanes]] = p[j * lanes];
  }

  std::unique_ptr<T[]> kept_;
  std::unique_ptr<int32_t[]> places_, index_;
  Lanes<T> lanes_;
  Vec<T> eps_;
  int64_t columns_ = 0;
  int64_t count_[lanes];
  bool broken_[lanes] = {};
};

// ----------------------------------------------------------------------------------------------- backward

// Gradients of a row; returns what it adds to the gradient of α. See entmax_backward in reference.py.
template <typename T, bool need_alpha>
double backward_row(const T* weights, const T* grad, T* grad_scores, T* scratch, int64_t n, T eps) {
  constexpr int lanes = Simd<T>::lanes;
  const Vec<T> all_eps = eps + Vec<T>{}, reciprocal_eps = 1 / all_eps;
  Vec<T> total = {}, product = {};
  for (int64_t j = 0; j < n; j += lanes) {
    const Vec<T> p = load(weights + j, n - j);
    Vec<T> w = {}, term = {};
    if (any<T>(p != T(0))) {
      if (!need_alpha && eps == 1) {
        w = p > 0 ? 1 + w : p;
      } else if (!need_alpha && eps == T(0.5)) {
        for (int i = 0; i < lanes; ++i) w[i] = std::sqrt(p[i]);
      } else {
        terms<T, need_alpha>(p, all_eps, reciprocal_eps, w, term);
      }
      total += w;
      product += w * load(grad + j, n - j);
    }
    store(w, grad_scores + j, n - j);
    if (need_alpha) store(term, scratch + j, n - j);
  }
  const T mass = sum<T>(total);
  const T mean = mass > 0 ? sum<T>(product) / mass : mass;  // 0 without any weight; a NaN stays
  Vec<T> grad_alpha = {};
  for (int64_t j = 0; j < n; j += lanes) {
    const Vec<T> centred = load(grad + j, n - j) - mean;
    store<T>(load(grad_scores + j, n - j) * centred, grad_scores + j, n - j);
    if (need_alpha) grad_alpha -= load(scratch + j, n - j) * centred;
  }
  return sum<T>(grad_alpha);
}

template <typename T>
void forward(const Problem<T>& problem, const T* scores, T* weights) {
  constexpr int lanes = Simd<T>::lanes;
  const int64_t blocks = (problem.rows + lanes - 1) / lanes;
  at::parallel_for(0, blocks, grain / (lanes * problem.n) + 1, [&](int64_t begin, int64_t end) {
    Block<T> block(problem.n);
    for (int64_t i = begin; i < end; ++i) block.solve(problem, scores, weights, i * lanes);
  });
}

template <typename T>
void backward(const Problem<T>& problem, const T* weights, const T* grad, T* grad_scores, double* grad_alpha) {
  const int64_t n = problem.n;
  at::parallel_for(0, problem.rows, grain / n + 1, [&](int64_t begin, int64_t end) {
    std::unique_ptr<T[]> scratch(grad_alpha != nullptr ? new T[n] : nullptr);
    for (int64_t row = begin; row < end; ++row) {
      const T eps = never_zero<T>(problem.eps(row));
      const int64_t at = row * n;
      if (grad_alpha != nullptr) {
        grad_alpha[row] = backward_row<T, true>(weights + at, grad + at, grad_scores + at, scratch.get(), n, eps);
      } else {
        backward_row<T, false>(weights + at, grad + at, grad_scores + at, nullptr, n, eps);
      }
    }
  });
}

}  // namespace

// --------------------------------------------------------------------------------- what cpu.py calls, by ctypes

#define ENTMAX_FOR(T, SUFFIX)                                                                                   \
  extern "C" int64_t entmax_forward_##SUFFIX(const T* scores, T* weights, int64_t rows, int64_t n,              \
                                             const double* alpha, int64_t alphas, int64_t repeat) {             \
    const Alphas range = check(alpha, alphas);                                                                  \
    if (range != out_of_range && rows > 0) forward<T>({rows, n, alpha, alphas, repeat}, scores, weights);       \
    return range;                                                                                               \
  }                                                                                                             \
  extern "C" void entmax_backward_##SUFFIX(const T* weights, const T* grad, T* grad_scores, double* grad_alpha, \
                                           int64_t rows, int64_t n, const double* alpha, int64_t alphas,        \
                                           int64_t repeat) {                                                    \
    backward<T>({rows, n, alpha, alphas, repeat}, weights, grad, grad_scores, grad_alpha);                      \
  }

ENTMAX_FOR(float, float32)
ENTMAX_FOR(double, float64)

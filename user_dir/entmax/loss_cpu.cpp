// The α-entmax loss of long rows of scores, forward and backward, for the CPU; notation as in lanes.h.
//
// Forward: the scores that can get any weight at all are mostly few, whatever the length of the row. They are copied
// to a buffer, on which Newton's method finds λ. The loss is the value of the dual at λ,
//     λ + (Σ p^α − 1) / α,  with p^α = p u,
// which is flat there: an error δ of λ changes it by δ² only. Per row, only max z, λ and Σ p are kept.
// Backward: one pass over the scores computes p again and writes the gradient; nothing else is stored.

#include <ATen/Parallel.h>

#include "rows.h"

namespace {

using namespace entmax;

template <typename T>
struct Problem {
  const T* scores;
  const int64_t* targets;
  int64_t rows, n;
  T eps, smoothing;
  int64_t ignored;  // a row with this target has no loss and no gradient
};

// The weights of a row are p(ε (z − top − λ)) / mass; top is NaN if a score is NaN or +∞, and −∞ if all are −∞.
template <typename T>
struct Solution {
  T top, lambda, mass;
};

template <typename T, typename Function>
ENTMAX_INLINE void with_power(T eps, const Function& function) {
  if (eps == 1) return function(Sparsemax<T>{});
  if (eps == T(0.5)) return function(Entmax15<T>{});
  function(AnyAlpha<T>(eps + Vec<T>{}));
}

// ------------------------------------------------------------------------------------------------ forward

// Copy z − top for the scores z of a row with ε (z − top) > −1; returns how many. kept has room for a vector more.
template <typename T>
inline int64_t collect(const T* row, int64_t n, T top, T eps, T* kept) {
  constexpr int lanes = Simd<T>::lanes;
  const T least = -1 / eps;
  int64_t count = 0;
  for (int64_t j = 0; j < n; j += lanes) {
    const Vec<T> z = load(row + j, n - j, -std::numeric_limits<T>::infinity()) - top;
    const IntVec<T> keep = z > least;
    if (!any<T>(keep)) continue;
#ifdef __AVX512F__
    const uint32_t mask = bits<T>(keep);
    if constexpr (std::is_same<T, float>::value) {
      _mm512_storeu_ps(kept + count, _mm512_maskz_compress_ps(mask, (__m512)z));
    } else {
      _mm512_storeu_pd(kept + count, _mm512_maskz_compress_pd(mask, (__m512d)z));
    }
    count += __builtin_popcount(mask);
#else
    for (int i = 0; i < lanes; ++i) {
      kept[count] = z[i];
      count += keep[i] != 0;
    }
#endif
  }
  return count;
}

template <typename T>
struct Sums {
  T mass, slope, excess;  // Σ p, Σ w and Σ p (u − 1)
  int64_t support;
};

// Sums over whole vectors of scores, the last one filled up with scores out of reach.
template <typename T, bool all, typename Power>
inline Sums<T> sums_at(const Power& power, const T* z, int64_t n, T eps, T lambda) {
  constexpr int lanes = Simd<T>::lanes;
  Vec<T> mass = {}, slope = {}, excess = {};
  IntVec<T> support = {};
  for (int64_t start = 0; start < n; start += 64 * lanes) {  // pairwise sums limit rounding errors
    const int64_t end = std::min<int64_t>(start + 64 * lanes, n);
    Vec<T> some_mass = {}, some_slope = {}, some_excess = {};
    for (int64_t j = start; j < end; j += lanes) {
      const Vec<T> x = eps * (load(z + j) - lambda);
      Vec<T> p, w, h;
      power.prepare(x, p, w);
      power(x, p, w, h);
      some_mass += p;
      some_slope += w;
      if (all) {
        some_excess += p > 0 ? p * x : Vec<T>{};
        support -= p > 0;
      }
    }
    mass += some_mass;
    slope += some_slope;
    excess += some_excess;
  }
  int64_t count = 0;
  for (int i = 0; i < lanes; ++i) count += support[i];
  return {sum<T>(mass), sum<T>(slope), sum<T>(excess), count};
}

template <typename T>
class Row {
 public:
  explicit Row(int64_t n) : kept_(new T[n + 2 * Simd<T>::lanes]) {}

  // The loss of one row; `kept_` is scratch space.
  T solve(const Problem<T>& problem, int64_t number, Solution<T>& solution, int64_t& support) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    const T* row = problem.scores + number * problem.n;
    const int64_t target = problem.targets[number];
    support = 0;
    solution = {T(0), T(0), T(1)};
    if (target == problem.ignored) return 0;
    const T top = greatest(row, problem.n);
    solution.top = top;
    if (top != top || top == infinity) return solution.top = std::numeric_limits<T>::quiet_NaN();
    if (top == -infinity) return infinity;
    const T eps = problem.eps;
    int64_t count = collect(row, problem.n, top, eps, kept_.get());
    fill_up(count, eps);
    T lambda = count > 2 * Simd<T>::lanes && eps > T(0.2) ? cheap_lambda(kept_.get(), count, eps) : T(0);
    Sums<T> sums;
    with_power(eps, [&](const auto& power) {
      lambda = newton(power, count, eps, lambda);
      sums = sums_at<T, true>(power, kept_.get(), count, eps, lambda);
    });
    solution.lambda = lambda;
    solution.mass = sums.mass;
    support = sums.support;
    // The last term moves the dual on to its minimum, from λ to λ + (Σ p − 1) / Σ w.
    const T over = sums.mass - 1, own = row[target] - top;
    const T dual = lambda + (over + sums.excess) / (1 + eps) - over * over / (2 * sums.slope);
    if (problem.smoothing == 0) return dual - own;
    return dual - own + problem.smoothing * (own - mean(row, problem.n, top));
  }

 private:
  void fill_up(int64_t count, T eps) {
    for (int i = 0; i < Simd<T>::lanes; ++i) kept_[count + i] = -2 / eps;
  }

  // Newton on ‖u‖ = 1, as in reference.py. The caller divides by Σ p, so λ need not be exact.
  template <typename Power>
  T newton(const Power& power, int64_t count, T eps, T lambda) const {
    // for ε ≤ ½, a step of δ from λ is off by no more than δ² / 2
    const T close = eps > T(0.5) ? Simd<T>::closest : std::sqrt(Simd<T>::tolerance);
    for (int step = 0; step < 40; ++step) {
      const Sums<T> sums = sums_at<T, false>(power, kept_.get(), count, eps, lambda);
      const T delta = (sums.mass - 1) / sums.slope;
      if (std::abs(delta) <= close) return lambda + delta;
      // (S − S^(1−ε)) / (εD)
      lambda -= sums.mass * std::expm1(-eps * std::log(sums.mass)) / (eps * sums.slope);
    }
    return lambda;
  }

  static T mean(const T* row, int64_t n, T top) {
    constexpr int lanes = Simd<T>::lanes;
    double total = 0;
    for (int64_t start = 0; start < n; start += 64 * lanes) {
      Vec<T> some = {};
      const int64_t end = std::min<int64_t>(start + 64 * lanes, n);
      for (int64_t j = start; j < end; j += lanes) some += load(row + j, n - j, top) - top;
      total += sum<T>(some);
    }
    return static_cast<T>(total / n);
  }

  std::unique_ptr<T[]> kept_;
};

template <typename T>
void forward(const Problem<T>& problem, T* losses, int64_t* support, Solution<T>* solutions) {
  at::parallel_for(0, problem.rows, grain / problem.n + 1, [&](int64_t begin, int64_t end) {
    Row<T> row(problem.n);
    for (int64_t i = begin; i < end; ++i) losses[i] = row.solve(problem, i, solutions[i], support[i]);
  });
}

// ----------------------------------------------------------------------------------------------- backward

// grad · (p − (1 − s) e_y − s / n) for one row
template <typename T>
void backward_row(const Problem<T>& problem, int64_t number, const Solution<T>& solution, T grad, T* grad_row) {
  constexpr int lanes = Simd<T>::lanes;
  const int64_t n = problem.n, target = problem.targets[number];
  if (target == problem.ignored || solution.top == -std::numeric_limits<T>::infinity()) {
    std::fill(grad_row, grad_row + n, T(0));
    return;
  }
  if (solution.top != solution.top) {
    std::fill(grad_row, grad_row + n, solution.top);
    return;
  }
  const T* row = problem.scores + number * n;
  const T eps = problem.eps, scale = grad / solution.mass, rest = -grad * problem.smoothing / n;
  const T least = solution.lambda - 1 / eps;
  with_power(eps, [&](const auto& power) {
    for (int64_t j = 0; j < n; j += lanes) {
      const Vec<T> z = load(row + j, n - j, -std::numeric_limits<T>::infinity()) - solution.top;
      Vec<T> gradient = rest + Vec<T>{};
      if (any<T>(z > least)) {
        const Vec<T> x = eps * (maximum(z, least + Vec<T>{}) - solution.lambda);
        Vec<T> p, w, h;
        power.prepare(x, p, w);
        power(x, p, w, h);
        gradient += z > least ? p * scale : Vec<T>{};
      }
      store(gradient, grad_row + j, n - j);
    }
  });
  grad_row[target] -= grad * (1 - problem.smoothing);
}

template <typename T>
void backward(const Problem<T>& problem, const Solution<T>* solutions, const T* grad, T* grad_scores) {
  at::parallel_for(0, problem.rows, grain / problem.n + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      backward_row(problem, i, solutions[i], grad[i], grad_scores + i * problem.n);
    }
  });
}

}  // namespace

// ---------------------------------------------------------------------------- what cpu.py calls, by ctypes

#define ENTMAX_LOSS_FOR(T, SUFFIX)                                                                                  \
  extern "C" void entmax_loss_forward_##SUFFIX(const T* scores, const int64_t* targets, int64_t rows, int64_t n,    \
                                               double eps, double smoothing, int64_t ignored, T* losses,            \
                                               int64_t* support, T* solutions) {                                    \
    const Problem<T> problem{scores, targets, rows, n, never_zero<T>(eps), static_cast<T>(smoothing), ignored};     \
    forward<T>(problem, losses, support, reinterpret_cast<Solution<T>*>(solutions));                                \
  }                                                                                                                 \
  extern "C" void entmax_loss_backward_##SUFFIX(const T* scores, const int64_t* targets, int64_t rows, int64_t n,   \
                                                double eps, double smoothing, int64_t ignored, const T* solutions,  \
                                                const T* grad, T* grad_scores) {                                    \
    const Problem<T> problem{scores, targets, rows, n, never_zero<T>(eps), static_cast<T>(smoothing), ignored};     \
    backward<T>(problem, reinterpret_cast<const Solution<T>*>(solutions), grad, grad_scores);                       \
  }

ENTMAX_LOSS_FOR(float, float32)
ENTMAX_LOSS_FOR(double, float64)

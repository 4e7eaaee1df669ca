// log Σ_n π_n softmax(z_n) over the pairs n of each row, and its gradients, for the CPU; vectors as in lanes.h.
//
// Forward: the exponentials of one pair at a time stay in the cache, and nothing of the size of the logits is written.
// Backward: q_n = π_n softmax(z_n) is computed again, from the logits and two numbers per pair.

#include <ATen/Parallel.h>

#include "rows.h"

namespace {

using namespace entmax;

template <typename T>
struct Problem {
  const T* logits;       // (N, V), N pairs in the order of their rows
  const T* weights;      // π (N)
  const int64_t* first;  // (R + 1): the pairs of row r are first[r] … first[r + 1] − 1
  int64_t rows, n;       // n = V
};

// q = e^(z − top) scale. Without a finite top the scale is infinite or NaN, and so the row becomes NaN.
template <typename T>
struct Pair {
  T top, scale;
};

template <typename T>
constexpr T least_mixture = std::is_same<T, float>::value ? T(1e-37) : T(1e-300);

// e^(z − top); 0 where it would not be a normal number.
template <typename T>
ENTMAX_INLINE Vec<T> exponential(const T* z, int64_t count, T top) {
  const Vec<T> x = (load(z, count, -std::numeric_limits<T>::infinity()) - top) * static_cast<T>(M_LOG2E);
  const Vec<T> least = Simd<T>::least_log2 + Vec<T>{};
  return x > least ? exp2<T>(maximum(x, least)) : Vec<T>{};
}

// ------------------------------------------------------------------------------------------------ forward

template <typename T>
void forward_row(const Problem<T>& problem, int64_t row, T* exponentials, Pair<T>* pairs, T* mixture, T* log_p) {
  constexpr int lanes = Simd<T>::lanes;
  const int64_t n = problem.n;
  std::fill(mixture, mixture + n, T(0));
  for (int64_t pair = problem.first[row]; pair < problem.first[row + 1]; ++pair) {
    const T* z = problem.logits + pair * n;
    const T top = greatest(z, n);
    T mass = 0;
    for (int64_t start = 0; start < n; start += 64 * lanes) {  // pairwise sums limit rounding errors
      Vec<T> some = {};
      const int64_t end = std::min<int64_t>(start + 64 * lanes, n);
      for (int64_t j = start; j < end; j += lanes) {
        const Vec<T> e = exponential(z + j, n - j, top);
        some += e;
        store(e, exponentials + j, n - j);
      }
      mass += sum<T>(some);
    }
    const T scale = problem.weights[pair] / mass;
    pairs[pair] = {top, scale};
    for (int64_t j = 0; j < n; j += lanes) {
      store(load(mixture + j, n - j) + scale * load(exponentials + j, n - j), mixture + j, n - j);
    }
  }
  const Vec<T> least = least_mixture<T> + Vec<T>{};
  for (int64_t j = 0; j < n; j += lanes) {
    const Vec<T> value = load(mixture + j, n - j, T(1));
    const Vec<T> kept = value < least ? least : value;  // NaN stays NaN
    store(kept, mixture + j, n - j);
    store(log2<T>(kept) * static_cast<T>(M_LN2), log_p + j, n - j);
  }
}

template <typename T>
void forward(const Problem<T>& problem, T* pairs, T* mixture, T* log_p) {
  const int64_t n = problem.n;
  at::parallel_for(0, problem.rows, grain / n + 1, [&](int64_t begin, int64_t end) {
    const std::unique_ptr<T[]> exponentials(new T[n]);
    for (int64_t row = begin; row < end; ++row) {
      forward_row(problem, row, exponentials.get(), reinterpret_cast<Pair<T>*>(pairs), mixture + row * n,
                  log_p + row * n);
    }
  });
}

// ----------------------------------------------------------------------------------------------- backward

// With g the gradient of the result, m the mixture and t = g / m (0 where m was raised): the gradient of z_n is
// q_n (t − d_n), that of π_n is d_n = Σ_v q_nv t_v / π_n. Unlike g / m, q_n / m is at most 1.
template <typename T>
void backward_row(const Problem<T>& problem, int64_t row, const Pair<T>* pairs, const T* mixture, const T* grad,
                  T* ratios, T* grad_logits, T* grad_weights) {
  constexpr int lanes = Simd<T>::lanes;
  const int64_t n = problem.n;
  for (int64_t j = 0; j < n; j += lanes) {
    const Vec<T> m = load(mixture + j, n - j, T(1));
    store(m <= least_mixture<T> ? Vec<T>{} : 1 / m, ratios + j, n - j);
  }
  for (int64_t pair = problem.first[row]; pair < problem.first[row + 1]; ++pair) {
    const auto [top, scale] = pairs[pair];
    const T* z = problem.logits + pair * n;
    T* q = grad_logits + pair * n;
    T total = 0;
    for (int64_t start = 0; start < n; start += 64 * lanes) {
      Vec<T> some = {};
      const int64_t end = std::min<int64_t>(start + 64 * lanes, n);
      for (int64_t j = start; j < end; j += lanes) {
        const Vec<T> value = scale * exponential(z + j, n - j, top);
        some += n - j >= lanes ? value * load(ratios + j) * load(grad + j) : Vec<T>{};
        store(value, q + j, n - j);
      }
      total += sum<T>(some);
    }
    for (int64_t j = n - n % lanes; j < n; ++j) total += q[j] * ratios[j] * grad[j];
    const T mean = grad_weights[pair] = total / problem.weights[pair];
    for (int64_t j = 0; j < n; j += lanes) {
      const Vec<T> value = load(q + j, n - j);
      store(value * load(ratios + j, n - j) * load(grad + j, n - j) - value * mean, q + j, n - j);
    }
  }
}

template <typename T>
void backward(const Problem<T>& problem, const T* pairs, const T* mixture, const T* grad, T* grad_logits,
              T* grad_weights) {
  const int64_t n = problem.n;
  at::parallel_for(0, problem.rows, grain / n + 1, [&](int64_t begin, int64_t end) {
    const std::unique_ptr<T[]> ratios(new T[n]);
    for (int64_t row = begin; row < end; ++row) {
      backward_row(problem, row, reinterpret_cast<const Pair<T>*>(pairs), mixture + row * n, grad + row * n,
                   ratios.get(), grad_logits, grad_weights);
    }
  });
}

}  // namespace

// ------------------------------------------------------------------------- what mixture.py calls, by ctypes

#define LATENT_MIXTURE_FOR(T, SUFFIX)                                                                              \
  extern "C" void latent_mixture_forward_##SUFFIX(const T* logits, const T* weights, const int64_t* first,         \
                                                  int64_t rows, int64_t n, T* pairs, T* mixture, T* log_p) {       \
    forward<T>({logits, weights, first, rows, n}, pairs, mixture, log_p);                                          \
  }                                                                                                                \
  extern "C" void latent_mixture_backward_##SUFFIX(const T* logits, const T* weights, const int64_t* first,        \
                                                   int64_t rows, int64_t n, const T* pairs, const T* mixture,      \
                                                   const T* grad, T* grad_logits, T* grad_weights) {               \
    backward<T>({logits, weights, first, rows, n}, pairs, mixture, grad, grad_logits, grad_weights);               \
  }

LATENT_MIXTURE_FOR(float, float32)
LATENT_MIXTURE_FOR(double, float64)

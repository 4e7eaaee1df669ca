// Shared by kernels that read a row at a time: the greatest score of a row, and a cheap lower bound of its λ.

#pragma once

#include "lanes.h"

namespace entmax {

// About as many numbers as are worth waking a thread for.
constexpr int64_t grain = 16384;

// The greatest number of a row, or NaN if one of its numbers is NaN.
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

// A lower bound of λ, for scores of which the greatest is 0: two steps of Newton's method for α = 1.5, or for α = 2 if
// the row's α is greater, where steps cost no more than a pass over memory. It is a bound because λ falls as α grows.
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
    lambda += (linear ? mass - 1 : mass - std::sqrt(mass)) / slope;
  }
  return lambda;
}

}  // namespace entmax

// Residual connections with LayerNorm, and the gated norm of rela.py.

#pragma once

#include "lanes.h"
#include "threads.h"

namespace decoding {

using namespace entmax;

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

// scale ∘ x / rms(x) ∘ sigmoid(gate ∘ x), in place.
template <typename T>
void gated_norm(int64_t rows, int64_t width, T* x, const T* scale, const T* gate) {
  constexpr int lanes = Simd<T>::lanes;
  const Vec<T> least = Simd<T>::least_log2 + Vec<T>{};
  share_out(rows, 8.0 * width / lanes, [&](int64_t begin, int64_t end) {
    for (T* row = x + begin * width; row < x + end * width; row += width) {
      Vec<T> square = {};
      for (int64_t d = 0; d < width; d += lanes) {
        const Vec<T> value = load(row + d, width - d);
        square += value * value;
      }
      const T factor = 1 / std::sqrt(sum<T>(square) / width + T(1e-8));
      for (int64_t d = 0; d < width; d += lanes) {
        const Vec<T> value = load(row + d, width - d);
        const Vec<T> power = load(gate + d, width - d) * value * static_cast<T>(-M_LOG2E);
        const Vec<T> sigmoid = 1 / (1 + exp2<T>(minimum(maximum(power, least), -least)));
        store<T>(load(scale + d, width - d) * value * factor * sigmoid, row + d, width - d);
      }
    }
  });
}

}  // namespace decoding

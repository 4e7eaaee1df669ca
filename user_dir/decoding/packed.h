// Weights laid out for products.h, and where results go.

#pragma once

#include "lanes.h"

namespace decoding {

using namespace entmax;

// Ways to multiply 8-bit integers, each faster than the one before. All give the same results.
enum Instructions : int64_t { plain, byte_pairs, vnni };

// The fastest instructions that this code was compiled for and the processor has.
inline Instructions fastest() {
#ifdef __AVX512F__
  if (__builtin_cpu_supports("avx512vnni")) return vnni;
#endif
#ifdef __AVX2__
  return byte_pairs;
#endif
  return plain;
}

// W and b, as laid out by pack(). The fields are those of Packed in weights.py.
template <typename T>
struct Packed {
  int64_t inputs, outputs;
  const void* panels;         // 64-byte aligned
  const float* scales;        // of each output, behind the panels; null unless there are integers
  const T* bias;              // null: none
  Instructions instructions;  // for integers

  bool int8() const { return scales != nullptr; }
  int64_t width() const { return 2 * (int8() ? Simd<float>::lanes : Simd<T>::lanes); }
  int64_t count() const { return (outputs + width() - 1) / width(); }
  int64_t depth() const { return int8() ? (inputs + 3) / 4 * 4 : inputs; }
  int64_t panel_bytes() const { return depth() * width() * (int8() ? 1 : sizeof(T)); }
  // The sum of the integers of each output.
  const int32_t* sums() const { return reinterpret_cast<const int32_t*>(scales + count() * width()); }
};

template <typename T>
int64_t packed_bytes(int64_t inputs, int64_t outputs, bool int8) {
  const float some = 0;
  const Packed<T> packed{inputs, outputs, nullptr, int8 ? &some : nullptr, nullptr, plain};
  return packed.count() * (packed.panel_bytes() + (int8 ? packed.width() * (sizeof(float) + sizeof(int32_t)) : 0));
}

// Lay out W (outputs, inputs) in `to`. With integers, the weights w of an output become −127 … 127, in steps of
// max |w| / 127.
template <typename T>
Packed<T> pack(const T* weight, const T* bias, int64_t inputs, int64_t outputs, bool int8, void* to) {
  std::memset(to, 0, packed_bytes<T>(inputs, outputs, int8));
  const float some = 0;
  Packed<T> packed{inputs, outputs, to, int8 ? &some : nullptr, bias, fastest()};
  float* scales = reinterpret_cast<float*>(static_cast<char*>(to) + packed.count() * packed.panel_bytes());
  if (int8) packed.scales = scales;
  const int64_t width = packed.width();
  for (int64_t output = 0; output < outputs; ++output) {
    const T* row = weight + output * inputs;
    char* panel = static_cast<char*>(to) + output / width * packed.panel_bytes();
    const int64_t column = output % width;
    if (!int8) {
      for (int64_t i = 0; i < inputs; ++i) reinterpret_cast<T*>(panel)[i * width + column] = row[i];
      continue;
    }
    T greatest = 0;
    for (int64_t i = 0; i < inputs; ++i) {
      const T size = std::abs(row[i]);
      greatest = size > greatest || size != size ? size : greatest;
    }
    const float scale = greatest / 127;
    scales[output] = scale;
    if (!(scale > 0 && scale < std::numeric_limits<float>::infinity())) continue;
    int32_t sum = 0;
    for (int64_t i = 0; i < inputs; ++i) {
      const T rounded = std::min<T>(std::max<T>(std::nearbyint(row[i] / scale), -127), 127);
      panel[(i / 4 * width + column) * 4 + i % 4] = static_cast<int8_t>(rounded);
      sum += static_cast<int32_t>(rounded);
    }
    const_cast<int32_t*>(packed.sums())[output] = sum;
  }
  return packed;
}

// Where results go: y, in rows with the stride `row`, which begin with output `first`.
template <typename T>
struct Out {
  T* y;
  int64_t row;
  bool relu;
  int64_t first = 0;

  ENTMAX_INLINE void put(Vec<T> value, int64_t at_row, int64_t at, int64_t count) const {
    if (relu) value = value < 0 ? Vec<T>{} : value;  // NaN stays
    store<T>(value, y + at_row * row + at - first, count);
  }
};

// Prefetch the bytes that lie `ahead` of `inputs` in each of `panels` panels, which are `stride` bytes apart.
template <int panels, int bytes>
ENTMAX_INLINE void fetch(const void* inputs, int64_t stride, int64_t ahead) {
#pragma GCC unroll 8
  for (int p = 0; p < panels; ++p) {
#pragma GCC unroll 8
    for (int b = 0; b < bytes; b += 64) {
      __builtin_prefetch(static_cast<const char*>(inputs) + p * stride + ahead + b, 0, 2);
    }
  }
}

}  // namespace decoding

// Products of translation on a CPU: x ↦ xWᵀ + b, with W laid out once for many x, in floats or in 8-bit integers.
//
// W is cut into panels of as many outputs as two vectors hold; the weights of a panel stand side by side, input after
// input. Each result is one sum in the order of the inputs, so that it depends neither on the other rows nor on how
// many there are.

#pragma once

#include <ATen/Parallel.h>

#include <vector>

#include "../entmax/lanes.h"

namespace decoding {

using namespace entmax;

// How 8-bit integers are multiplied, each faster than the one before. Their sums are the same.
enum Instructions : int64_t { plain, byte_pairs, vnni };

// The last of those that this was compiled for and the processor has.
inline Instructions fastest() {
#ifdef __AVX512F__
  if (__builtin_cpu_supports("avx512vnni")) return vnni;
#endif
#ifdef __AVX2__
  return byte_pairs;
#endif
  return plain;
}

// W and b, and where they lie. Also a structure of products.py.
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

// What `pack` wrote into `from`.
template <typename T>
Packed<T> packed_at(const void* from, int64_t inputs, int64_t outputs, bool int8, const T* bias) {
  const float some = 0;
  Packed<T> packed{inputs, outputs, from, int8 ? &some : nullptr, bias, fastest()};
  const char* end = static_cast<const char*>(from) + packed.count() * packed.panel_bytes();
  if (int8) packed.scales = reinterpret_cast<const float*>(end);
  return packed;
}

// Lay out W (outputs, inputs). As integers, each output is rounded to 127 steps up to its greatest absolute value.
template <typename T>
void pack(const T* weight, int64_t inputs, int64_t outputs, bool int8, void* to) {
  std::memset(to, 0, packed_bytes<T>(inputs, outputs, int8));
  const Packed<T> packed = packed_at<T>(to, inputs, outputs, int8, nullptr);
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
    const_cast<float*>(packed.scales)[output] = scale;
    if (!(scale > 0 && scale < std::numeric_limits<float>::infinity())) continue;
    int32_t sum = 0;
    for (int64_t i = 0; i < inputs; ++i) {
      const T rounded = std::min<T>(std::max<T>(std::nearbyint(row[i] / scale), -127), 127);
      panel[(i / 4 * width + column) * 4 + i % 4] = static_cast<int8_t>(rounded);
      sum += static_cast<int32_t>(rounded);
    }
    const_cast<int32_t*>(packed.sums())[output] = sum;
  }
}

// Where results go: rows of such a stride, which begin with output `first`.
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

// Fetch what lies `ahead` of inputs of some panels, which are `stride` apart.
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

template <typename T>
class Floats {
 public:
  Floats(const Packed<T>& packed, const T* x, int64_t x_row, const Out<T>& out)
      : packed_(packed), x_(x), x_row_(x_row), out_(out) {}

  // Some rows times some panels.
  template <int rows, int panels>
  void multiply(int64_t row, int64_t panel) const {
    const int64_t inputs = packed_.inputs, x_row = x_row_, bytes = packed_.panel_bytes();
    const int64_t ahead = row == 0 ? panels * bytes : 0;
    const T* x = x_ + row * x_row;
    const T* w = static_cast<const T*>(packed_.panels) + panel * inputs * width;
    Vec<T> sums[rows][2 * panels] = {};
    for (int64_t i = 0; i < inputs; ++i) {
      Vec<T> weights[2 * panels];
      fetch<panels, width * sizeof(T)>(w + i * width, bytes, ahead);
#pragma GCC unroll 8
      for (int v = 0; v < 2 * panels; ++v) weights[v] = load(w + (v / 2 * inputs + i) * width + v % 2 * lanes);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const T value = x[r * x_row + i];
#pragma GCC unroll 8
        for (int v = 0; v < 2 * panels; ++v) sums[r][v] += value * weights[v];
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < 2 * panels; ++v) {
      const int64_t at = panel * width + v * lanes, count = packed_.outputs - at;
      if (count <= 0) break;
      const Vec<T> bias = packed_.bias == nullptr ? Vec<T>{} : load(packed_.bias + at, count);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) out_.put(sums[r][v] + bias, row + r, at, count);
    }
  }

  static constexpr int registers = register_bytes == 64 ? 24 : 12;  // that sums may take

 private:
  static constexpr int lanes = Simd<T>::lanes, width = 2 * lanes;
  const Packed<T>& packed_;
  const T* x_;
  int64_t x_row_;
  Out<T> out_;
};

// A row of x as bytes: x ≈ step · (byte − zero). The 254 steps from its least to its greatest number, 0 among them, go
// from 1 to 255, so that byte − 128 has no number without a negative.
template <typename T>
struct Rounded {
  static constexpr int lanes = Simd<T>::lanes;
  uint8_t* bytes;  // written in whole vectors
  T step;
  int32_t zero;

  // A row with NaN or infinity gets a step that is NaN.
  void round(const T* x, int64_t inputs) {
    typedef uint8_t Bytes __attribute__((vector_size(lanes)));
    constexpr T rounding = static_cast<T>(3) * (typename Simd<T>::Int(1) << (Simd<T>::mantissa_bits - 1));
    Vec<T> low = {}, high = {}, broken = {};
    for (int64_t i = 0; i < inputs; i += lanes) {
      const Vec<T> values = load(x + i, inputs - i);
      broken += values * 0;  // NaN of NaN and infinity
      low = values < low ? values : low;
      high = maximum(values, high);
    }
    T least = 0, most = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      least = std::min<T>(least, low[lane]);
      most = std::max<T>(most, high[lane]);
    }
    step = sum<T>(broken) == 0 ? (most / 2 - least / 2) / 127 : std::numeric_limits<T>::quiet_NaN();
    const T inverse = step >= std::numeric_limits<T>::min() ? 1 / step : 0;  // 0: all are, or as good as that
    const T offset = inverse > 0 ? 1 + std::nearbyint(-least * inverse) : 1;
    zero = static_cast<int32_t>(offset);
    for (int64_t i = 0; i < inputs; i += lanes) {
      const Vec<T> rounded = load(x + i, inputs - i) * inverse + rounding;
      Vec<T> values = maximum(rounded - rounding + offset, 1 + Vec<T>{});
      values = values < 255 ? values : 255 + Vec<T>{};  // NaN, too
      const Bytes some = __builtin_convertvector(__builtin_convertvector(values, IntVec<T>), Bytes);
      std::memcpy(bytes + i, &some, sizeof some);
    }
  }
};

typedef IntVec<float> Words;  // four bytes each

// sums + the products of four unsigned bytes with the four signed ones of each lane. With byte_pairs, 128 is taken from
// the bytes: |w| · ±(byte − 128) are products of an unsigned and a signed byte, two of which fit into 16 bits.
template <Instructions instructions>
ENTMAX_INLINE Words add_products(Words sums, uint32_t bytes, Words weights) {
#ifdef __AVX512F__
  const __m512i x = _mm512_set1_epi32(bytes), w = (__m512i)weights;
  if constexpr (instructions == vnni) {
    // Not the intrinsic, which only compiles for processors that all have it.
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(x), "v"(w));
    return sums;
  }
  if constexpr (instructions == byte_pairs) {
    const __m512i less = _mm512_xor_si512(x, _mm512_set1_epi8(-128));
    const __m512i turned = _mm512_mask_sub_epi8(less, _mm512_movepi8_mask(w), _mm512_setzero_si512(), less);
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(w), turned);
    return sums + (Words)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
  }
#elif defined(__AVX2__)
  if constexpr (instructions == byte_pairs) {
    const __m256i less = _mm256_xor_si256(_mm256_set1_epi32(bytes), _mm256_set1_epi8(-128)), w = (__m256i)weights;
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(less, w));
    return sums + (Words)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
#endif
  for (int i = 0; i < 4; ++i) {
    sums += static_cast<int32_t>(bytes >> (8 * i) & 255) * ((weights << (24 - 8 * i)) >> 24);
  }
  return sums;
}

template <typename T, Instructions instructions>
class Integers {
 public:
  Integers(const Packed<T>& packed, const Rounded<T>* rows, const Out<T>& out)
      : packed_(packed), rows_(rows), depth_(packed.depth()), out_(out) {}

  template <int rows, int panels>
  void multiply(int64_t row, int64_t panel) const {
    const int64_t depth = depth_, bytes = packed_.panel_bytes();
    const int64_t ahead = row == 0 ? panels * bytes : 0;
    const uint8_t* x = rows_[row].bytes;
    const char* w = static_cast<const char*>(packed_.panels) + panel * depth * width;
    Words sums[rows][2 * panels] = {};
    for (int64_t i = 0; i < depth; i += 4) {
      Words weights[2 * panels];
      fetch<panels, width * 4>(w + i * width, bytes, ahead);
#pragma GCC unroll 8
      for (int v = 0; v < 2 * panels; ++v) {
        std::memcpy(&weights[v], w + (v / 2 * depth + i) * width + v % 2 * sizeof(Words), sizeof(Words));
      }
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        uint32_t four;
        std::memcpy(&four, x + r * depth + i, sizeof four);
#pragma GCC unroll 8
        for (int v = 0; v < 2 * panels; ++v) sums[r][v] = add_products<instructions>(sums[r][v], four, weights[v]);
      }
    }
    for (int v = 0; v < 2 * panels; ++v) {
      for (int part = 0; part < Simd<float>::lanes; part += lanes) {
        const int64_t at = panel * width + v * Simd<float>::lanes + part;
        const auto* found = reinterpret_cast<const int32_t*>(&sums[0][v]) + part;
        if (at < packed_.outputs) finish<rows>(row, at, found, 2 * panels);
      }
    }
  }

  static constexpr int registers = register_bytes == 64 ? 24 : 8;

 private:
  static constexpr int lanes = Simd<T>::lanes, width = 2 * Simd<float>::lanes;

  // From sums of integers to results, as many as a vector has, of each row.
  template <int rows>
  void finish(int64_t row, int64_t at, const int32_t* sums, int vectors) const {
    typedef int32_t Narrow __attribute__((vector_size(4 * lanes)));
    typedef float Scales __attribute__((vector_size(4 * lanes)));
    Narrow weights, products;
    Scales narrow;
    std::memcpy(&weights, packed_.sums() + at, sizeof weights);
    std::memcpy(&narrow, packed_.scales + at, sizeof narrow);
    const int64_t count = packed_.outputs - at;
    const Vec<T> scales = __builtin_convertvector(narrow, Vec<T>);
    const Vec<T> bias = packed_.bias == nullptr ? Vec<T>{} : load(packed_.bias + at, count);
    for (int r = 0; r < rows; ++r) {
      const Rounded<T>& rounded = rows_[row + r];
      std::memcpy(&products, sums + r * vectors * Simd<float>::lanes, sizeof products);
      const int32_t zero = rounded.zero - (instructions == byte_pairs ? 128 : 0);
      const Vec<T> value = __builtin_convertvector(products - zero * weights, Vec<T>);
      out_.put(value * (rounded.step * scales) + bias, row + r, at, count);
    }
  }

  const Packed<T>& packed_;
  const Rounded<T>* rows_;
  int64_t depth_;
  Out<T> out_;
};

constexpr int most_rows = 6;  // at once

constexpr int panels_at_once(int registers, int rows) {
  const int most = registers / (2 * rows);
  return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

// `count` rows, at most `rows`, times the panels begin … end − 1.
template <int rows, typename Kernel>
void multiply_rows(const Kernel& kernel, int64_t row, int64_t count, int64_t begin, int64_t end) {
  if constexpr (rows > 1) {
    if (count < rows) return multiply_rows<rows - 1>(kernel, row, count, begin, end);
  }
  constexpr int most = panels_at_once(Kernel::registers, rows);
  int64_t panel = begin;
  for (; panel + most <= end; panel += most) kernel.template multiply<rows, most>(row, panel);
  if constexpr (most > 2) {
    for (; panel + 2 <= end; panel += 2) kernel.template multiply<rows, 2>(row, panel);
  }
  for (; panel < end; ++panel) kernel.template multiply<rows, 1>(row, panel);
}

// All rows times the panels first … last − 1, a few after the other: as many as stay in the second-level cache.
template <typename T, typename Kernel>
void multiply_all(const Packed<T>& packed, const Kernel& kernel, int64_t rows, int64_t first, int64_t last) {
  constexpr int64_t cache = 1 << 19;
  constexpr double grain = 1 << 15;  // operations that are worth waking a thread for
  const int64_t blocks = (rows + most_rows - 1) / most_rows;
  const int64_t panels = std::max<int64_t>(1, std::min<int64_t>(4, cache / std::max<int64_t>(1, packed.panel_bytes())));
  const int64_t groups = (last - first + panels - 1) / panels;
  const double cost = static_cast<double>(rows) * (packed.panel_bytes() / register_bytes) * panels;
  at::parallel_for(0, groups, std::max<int64_t>(1, grain / std::max(cost, 1.0)), [&](int64_t group, int64_t past) {
    for (; group < past; ++group) {
      const int64_t begin = first + group * panels, end = std::min(begin + panels, last);
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t from = rows * block / blocks, to = rows * (block + 1) / blocks;
        multiply_rows<most_rows>(kernel, from, to - from, begin, end);
      }
    }
  });
}

// Rows x (rows, inputs) that are multiplied with one W: with integers, they are rounded once, into memory that a thread
// has for only one such object at a time.
template <typename T>
class Rows {
 public:
  Rows(const Packed<T>& packed, const T* x, int64_t rows, int64_t x_row)
      : packed_(packed), x_(x), rows_(rows), x_row_(x_row) {
    if (!packed.int8()) return;
    const int64_t depth = packed.depth();
    static thread_local std::vector<uint8_t> bytes;
    static thread_local std::vector<Rounded<T>> rounded;
    bytes.resize(std::max<size_t>(bytes.size(), rows * depth + register_bytes));
    rounded.resize(std::max<size_t>(rounded.size(), rows));
    for (int64_t row = 0; row < rows; ++row) {
      rounded[row].bytes = bytes.data() + row * depth;
      rounded[row].round(x + row * x_row, packed.inputs);
    }
    rounded_ = rounded.data();
  }

  // The outputs begin … end − 1; begin is a multiple of a panel's width.
  void multiply(int64_t begin, int64_t end, const Out<T>& out) const {
    const int64_t width = packed_.width(), first = begin / width, last = (end + width - 1) / width;
    const auto integers = [&]<Instructions instructions>() {
      multiply_all(packed_, Integers<T, instructions>(packed_, rounded_, out), rows_, first, last);
    };
    if (rows_ == 0) return;
    if (!packed_.int8()) return multiply_all(packed_, Floats<T>(packed_, x_, x_row_, out), rows_, first, last);
#ifdef __AVX512F__
    if (packed_.instructions == vnni) return integers.template operator()<vnni>();
#endif
#ifdef __AVX2__
    if (packed_.instructions == byte_pairs) return integers.template operator()<byte_pairs>();
#endif
    integers.template operator()<plain>();
  }

 private:
  const Packed<T>& packed_;
  const T* x_;
  int64_t rows_, x_row_;
  const Rounded<T>* rounded_ = nullptr;
};

// y (rows, outputs) = xWᵀ + b of x (rows, inputs), or of that max(·, 0) if relu.
//
// With integers, each row of x is rounded, too. A row of x with NaN or infinity gives NaN then.
template <typename T>
void multiply(const Packed<T>& packed, const T* x, int64_t rows, int64_t x_row, T* y, int64_t y_row, bool relu) {
  Rows<T>(packed, x, rows, x_row).multiply(0, packed.outputs, {y, y_row, relu});
}

}  // namespace decoding

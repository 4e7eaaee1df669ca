// Products with 8-bit integers.

#pragma once

#include "packed.h"

namespace decoding {

// A row of x as bytes: x ≈ step · (byte − zero). The range of its numbers and 0 is divided into 254 steps, from byte 1
// to byte 255: byte − 128 is then never −128, the negative of which does not fit into a byte.
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
      broken += values * 0;  // NaN if a value is NaN or infinite
      low = values < low ? values : low;
      high = maximum(values, high);
    }
    T least = 0, most = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      least = std::min<T>(least, low[lane]);
      most = std::max<T>(most, high[lane]);
    }
    step = sum<T>(broken) == 0 ? (most / 2 - least / 2) / 127 : std::numeric_limits<T>::quiet_NaN();
    const T inverse = step >= std::numeric_limits<T>::min() ? 1 / step : 0;  // 0 if all values are practically 0
    const T offset = inverse > 0 ? 1 + std::nearbyint(-least * inverse) : 1;
    zero = static_cast<int32_t>(offset);
    for (int64_t i = 0; i < inputs; i += lanes) {
      const Vec<T> rounded = load(x + i, inputs - i) * inverse + rounding;
      Vec<T> values = maximum(rounded - rounding + offset, 1 + Vec<T>{});
      values = values < 255 ? values : 255 + Vec<T>{};  // also replaces NaN
      const Bytes some = __builtin_convertvector(__builtin_convertvector(values, IntVec<T>), Bytes);
      std::memcpy(bytes + i, &some, sizeof some);
    }
  }
};

typedef IntVec<float> Words;  // four bytes each

// sums + the products of four unsigned bytes with the four signed ones of each lane. With byte_pairs, the bytes are
// lowered by 128: |w| · ±(byte − 128) is a product of an unsigned and a signed byte, and two of them fit into 16 bits.
template <Instructions instructions>
ENTMAX_INLINE Words add_products(Words sums, uint32_t bytes, Words weights) {
#ifdef __AVX512F__
  const __m512i x = _mm512_set1_epi32(bytes), w = (__m512i)weights;
  if constexpr (instructions == vnni) {
    // Not the intrinsic, which compiles only if all processors compiled for have the instruction.
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
        const auto* totals = reinterpret_cast<const int32_t*>(&sums[0][v]) + part;
        if (at < packed_.outputs) finish<rows>(row, at, totals, 2 * panels);
      }
    }
  }

  static constexpr int registers = register_bytes == 64 ? 24 : 8;

 private:
  static constexpr int lanes = Simd<T>::lanes, width = 2 * Simd<float>::lanes;

  // Convert sums of integers to results, one vector for each row.
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

}  // namespace decoding

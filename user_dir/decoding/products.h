// Matrix products for translation on a CPU: x ↦ xWᵀ + b, with W laid out once for many x, as floats or 8-bit integers.
//
// W is cut into panels of as many outputs as two vectors hold; the weights of a panel stand side by side, input after
// input. Each result is one sum in the order of the inputs, so that it depends neither on the other rows nor on how
// many there are.

#pragma once

#include <vector>

#include "integers.h"
#include "threads.h"

namespace decoding {

template <typename T>
class Floats {
 public:
  Floats(const Packed<T>& packed, const T* x, const Out<T>& out) : packed_(packed), x_(x), out_(out) {}

  // Multiply `rows` rows, from `row` on, by `panels` panels, from `panel` on.
  template <int rows, int panels>
  void multiply(int64_t row, int64_t panel) const {
    const int64_t inputs = packed_.inputs, bytes = packed_.panel_bytes();
    const int64_t ahead = row == 0 ? panels * bytes : 0;
    const T* x = x_ + row * inputs;
    const T* w = static_cast<const T*>(packed_.panels) + panel * inputs * width;
    Vec<T> sums[rows][2 * panels] = {};
    for (int64_t i = 0; i < inputs; ++i) {
      Vec<T> weights[2 * panels];
      fetch<panels, width * sizeof(T)>(w + i * width, bytes, ahead);
#pragma GCC unroll 8
      for (int v = 0; v < 2 * panels; ++v) weights[v] = load(w + (v / 2 * inputs + i) * width + v % 2 * lanes);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const T value = x[r * inputs + i];
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

// All rows times the panels first … last − 1, a few panels at a time: as many as stay in the second-level cache.
template <typename T, typename Kernel>
void multiply_all(const Packed<T>& packed, const Kernel& kernel, int64_t rows, int64_t first, int64_t last) {
  constexpr int64_t cache = 1 << 19;
  const int64_t blocks = (rows + most_rows - 1) / most_rows;
  const int64_t panels = std::max<int64_t>(1, std::min<int64_t>(4, cache / std::max<int64_t>(1, packed.panel_bytes())));
  const int64_t groups = (last - first + panels - 1) / panels;
  const double cost = static_cast<double>(rows) * (packed.panel_bytes() / register_bytes) * panels;
  share_out(groups, cost, [&](int64_t group, int64_t past) {
    for (; group < past; ++group) {
      const int64_t begin = first + group * panels, end = std::min(begin + panels, last);
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t from = rows * block / blocks, to = rows * (block + 1) / blocks;
        multiply_rows<most_rows>(kernel, from, to - from, begin, end);
      }
    }
  });
}

// Rows x (rows, inputs) that are multiplied by one W. With integers, they are rounded once, into memory of the thread:
// a thread can have only one such object at a time.
template <typename T>
class Rows {
 public:
  Rows(const Packed<T>& packed, const T* x, int64_t rows) : packed_(packed), x_(x), rows_(rows) {
    if (!packed.int8()) return;
    const int64_t depth = packed.depth();
    static thread_local std::vector<uint8_t> bytes;
    static thread_local std::vector<Rounded<T>> rounded;
    bytes.resize(std::max<size_t>(bytes.size(), rows * depth + register_bytes));
    rounded.resize(std::max<size_t>(rounded.size(), rows));
    for (int64_t row = 0; row < rows; ++row) {
      rounded[row].bytes = bytes.data() + row * depth;
      rounded[row].round(x + row * packed.inputs, packed.inputs);
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
    if (!packed_.int8()) return multiply_all(packed_, Floats<T>(packed_, x_, out), rows_, first, last);
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
  int64_t rows_;
  const Rounded<T>* rounded_ = nullptr;
};

// y (rows, outputs) = xWᵀ + b of x (rows, inputs), followed by max(·, 0) if relu.
//
// With integers, each row of x is rounded, too, and a row with NaN or infinity gives NaN.
template <typename T>
void multiply(const Packed<T>& packed, const T* x, int64_t rows, T* y, bool relu = false) {
  Rows<T>(packed, x, rows).multiply(0, packed.outputs, {y, packed.outputs, relu});
}

}  // namespace decoding

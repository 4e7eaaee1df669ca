// Products of a tile (as many queries as a vector has lanes) with the keys and values of its head.
//
// Scores, weights and their gradients are stored in columns: for each key, a vector over the queries of the tile.
// The group sizes below are chosen so that the sums of an inner loop stay in registers.

#pragma once

#include "lanes.h"

namespace entmax {

#ifdef __AVX512F__
constexpr int most_queries = 8, spread_group = 4;
#else
constexpr int most_queries = 4, spread_group = 2;
#endif
constexpr int key_group = 8, wide = 4, pair = 2;

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Rows of a matrix, each filled up with zeros to whole vectors.
template <typename T>
class Rows {
 public:
  static constexpr int lanes = Simd<T>::lanes;

  Rows(int64_t rows, int64_t head_dim)
      : width_(round_up(head_dim, lanes)), rows_(rows), head_dim_(head_dim), data_(new Vec<T>[rows * width_ / lanes]) {
    clear();
  }

  void clear() { std::fill(row(0), row(0) + rows_ * width_, T(0)); }
  T* row(int64_t i) { return reinterpret_cast<T*>(data_.get()) + i * width_; }
  const T* row(int64_t i) const { return reinterpret_cast<const T*>(data_.get()) + i * width_; }
  int64_t width() const { return width_; }
  int64_t head_dim() const { return head_dim_; }

  template <typename Stored>
  void read(int64_t i, const Stored* from, T factor) {
    T* to = row(i);
    for (int64_t d = 0; d < head_dim_; ++d) to[d] = static_cast<T>(from[d]) * factor;
  }
  template <typename Stored>
  void write(int64_t i, Stored* to, T factor) const {
    const T* from = row(i);
    for (int64_t d = 0; d < head_dim_; ++d) to[d] = static_cast<Stored>(from[d] * factor);
  }

 private:
  int64_t width_, rows_, head_dim_;
  std::unique_ptr<Vec<T>[]> data_;
};

// For each step of turn(): which entries of a pair of vectors, taken as one, its upper and its lower vector get.
template <typename T>
constexpr auto swaps = [] {
  constexpr int lanes = Simd<T>::lanes;
  std::array<std::array<typename Simd<T>::Int, 2 * lanes>, 4> patterns{};
  for (int step = 0, width = 1; width < lanes; ++step, width *= 2) {
    for (int i = 0; i < lanes; ++i) {
      patterns[step][i] = i & width ? lanes + i - width : i;
      patterns[step][lanes + i] = i & width ? lanes + i : i + width;
    }
  }
  return patterns;
}();

// Transpose a square of as many vectors as a vector has lanes. Each step swaps the two off-diagonal blocks of every
// square of 2 × 2 blocks; the blocks double in width from step to step.
template <typename T>
ENTMAX_INLINE void turn(Vec<T>* square) {
  constexpr int lanes = Simd<T>::lanes;
#ifdef __clang__
  T* entries = reinterpret_cast<T*>(square);
  for (int i = 0; i < lanes; ++i) {
    for (int j = 0; j < i; ++j) std::swap(entries[i * lanes + j], entries[j * lanes + i]);
  }
#else
#pragma GCC unroll 4
  for (int step = 0; 1 << step < lanes; ++step) {
    IntVec<T> upper, lower;
    std::memcpy(&upper, swaps<T>[step].data(), sizeof upper);
    std::memcpy(&lower, swaps<T>[step].data() + lanes, sizeof lower);
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) {
      if (i >> step & 1) continue;
      const Vec<T> above = square[i], below = square[i + (1 << step)];
      square[i] = __builtin_shuffle(above, below, upper);
      square[i + (1 << step)] = __builtin_shuffle(above, below, lower);
    }
  }
#endif
}

// Queries of a tile: as rows and, transposed, as a vector over the queries for each dimension.
template <typename T>
class Tile {
 public:
  static constexpr int lanes = Simd<T>::lanes;

  explicit Tile(int64_t head_dim) : rows(lanes, head_dim), turned(new Vec<T>[rows.width()]) {}

  // To be called before products.
  void turn() {
    for (int64_t d = 0; d < rows.width(); d += lanes) {
      Vec<T> square[lanes];
#pragma GCC unroll 16
      for (int lane = 0; lane < lanes; ++lane) square[lane] = load(rows.row(lane) + d);
      entmax::turn<T>(square);
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) turned[d + i] = square[i];
    }
  }

  Rows<T> rows;
  std::unique_ptr<Vec<T>[]> turned;
};

// Set columns[i], for i < count, to the products of the tile's queries with row place(i) of a matrix.
template <typename T, typename Place>
inline void products(const Tile<T>& tile, const Rows<T>& matrix, int64_t count, const Place& place, Vec<T>* columns) {
  const Vec<T>* turned = tile.turned.get();
  const int64_t head_dim = matrix.head_dim();
  int64_t j = 0;
  for (; j + key_group <= count; j += key_group) {
    const T* rows[key_group];
    Vec<T> sums[key_group] = {};
    for (int i = 0; i < key_group; ++i) rows[i] = matrix.row(place(j + i));
    for (int64_t d = 0; d < head_dim; ++d) {
      const Vec<T> query = turned[d];
#pragma GCC unroll 16
      for (int i = 0; i < key_group; ++i) sums[i] += query * rows[i][d];
    }
#pragma GCC unroll 16
    for (int i = 0; i < key_group; ++i) columns[j + i] = sums[i];
  }
  for (; j < count; ++j) {
    const T* row = matrix.row(place(j));
    Vec<T> sums[4] = {};
    int64_t d = 0;
    for (; d + 4 <= head_dim; d += 4) {
      for (int i = 0; i < 4; ++i) sums[i] += turned[d + i] * row[d + i];
    }
    for (; d < head_dim; ++d) sums[0] += turned[d] * row[d];
    columns[j] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
}

template <int vectors, typename T>
inline void combine_at(int64_t d, const Vec<T>* columns, int64_t count, const Rows<T>& matrix, const int64_t* place,
                       int64_t queries, Rows<T>& out) {
  constexpr int lanes = Simd<T>::lanes, query_group = std::min(lanes, most_queries);
  for (int64_t lane = 0; lane < queries; lane += query_group) {
    Vec<T> sums[query_group][vectors] = {};
    for (int64_t j = 0; j < count; ++j) {
      const T* row = matrix.row(place[j]) + d;
      const T* weight = reinterpret_cast<const T*>(columns + j) + lane;
      Vec<T> parts[vectors];
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) parts[v] = load(row + v * lanes);
#pragma GCC unroll 16
      for (int i = 0; i < query_group; ++i) {
#pragma GCC unroll 16
        for (int v = 0; v < vectors; ++v) sums[i][v] += parts[v] * weight[i];
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < query_group; ++i) {
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) {
        std::memcpy(out.row(lane + i) + d + v * lanes, &sums[i][v], sizeof sums[i][v]);
      }
    }
  }
}

// Set the row of out of each query to the sum of rows place[j] of a matrix, weighted by its entries in columns[j].
template <typename T>
inline void combine(const Vec<T>* columns, int64_t count, const Rows<T>& matrix, const int64_t* place, int64_t queries,
                    Rows<T>& out) {
  constexpr int lanes = Simd<T>::lanes;
  int64_t d = 0;
  for (; d + pair * lanes <= matrix.width(); d += pair * lanes) {
    combine_at<pair>(d, columns, count, matrix, place, queries, out);
  }
  for (; d < matrix.width(); d += lanes) combine_at<1>(d, columns, count, matrix, place, queries, out);
}

template <int keys, int vectors, typename T>
inline void spread_at(int64_t d, const Vec<T>* columns, const Rows<T>& tile, const int64_t* place, Rows<T>& matrix) {
  constexpr int lanes = Simd<T>::lanes;
  Vec<T> sums[keys][vectors];
#pragma GCC unroll 16
  for (int j = 0; j < keys; ++j) {
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) sums[j][v] = load(matrix.row(place[j]) + d + v * lanes);
  }
  for (int lane = 0; lane < lanes; ++lane) {
    Vec<T> parts[vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) parts[v] = load(tile.row(lane) + d + v * lanes);
#pragma GCC unroll 16
    for (int j = 0; j < keys; ++j) {
      const T weight = reinterpret_cast<const T*>(columns + j)[lane];
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) sums[j][v] += parts[v] * weight;
    }
  }
#pragma GCC unroll 16
  for (int j = 0; j < keys; ++j) {
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) {
      std::memcpy(matrix.row(place[j]) + d + v * lanes, &sums[j][v], sizeof sums[j][v]);
    }
  }
}

template <int keys, typename T>
inline void spread_rows(const Vec<T>* columns, const Rows<T>& tile, const int64_t* place, Rows<T>& matrix) {
  constexpr int lanes = Simd<T>::lanes;
  int64_t d = 0;
  for (; d + wide * lanes <= matrix.width(); d += wide * lanes) {
    spread_at<keys, wide>(d, columns, tile, place, matrix);
  }
  for (; d < matrix.width(); d += lanes) spread_at<keys, 1>(d, columns, tile, place, matrix);
}

// To row place[j] of a matrix, add the sum of the tile's rows weighted by the entries of columns[j].
template <typename T>
inline void spread(const Vec<T>* columns, int64_t count, const Rows<T>& tile, const int64_t* place, Rows<T>& matrix) {
  int64_t j = 0;
  for (; j + spread_group <= count; j += spread_group) {
    spread_rows<spread_group>(columns + j, tile, place + j, matrix);
  }
  for (; j < count; ++j) spread_rows<1>(columns + j, tile, place + j, matrix);
}

// -------------------------------------------------------------------------------- a query and a few keys

// Σ of the products of two rows.
template <typename T>
inline T dot(const T* a, const T* b, int64_t width) {
  constexpr int lanes = Simd<T>::lanes;
  Vec<T> total = {};
  for (int64_t d = 0; d < width; d += lanes) total += load(a + d) * load(b + d);
  return sum<T>(total);
}

// Add another row, times a factor, to a row.
template <typename T>
inline void add_scaled(const T* from, T factor, int64_t width, T* to) {
  constexpr int lanes = Simd<T>::lanes;
  for (int64_t d = 0; d < width; d += lanes) {
    const Vec<T> result = load(to + d) + load(from + d) * factor;
    std::memcpy(to + d, &result, sizeof result);
  }
}

template <int vectors, typename T>
inline void gather_at(int64_t d, const T* weights, const int32_t* keys, int64_t count, const Rows<T>& matrix, T* out) {
  constexpr int lanes = Simd<T>::lanes;
  Vec<T> even[vectors] = {}, odd[vectors] = {};
  int64_t i = 0;
  for (; i + 2 <= count; i += 2) {
    const T *first = matrix.row(keys[i]) + d, *second = matrix.row(keys[i + 1]) + d;
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) {
      even[v] += load(first + v * lanes) * weights[i];
      odd[v] += load(second + v * lanes) * weights[i + 1];
    }
  }
  if (i < count) {
    const T* last = matrix.row(keys[i]) + d;
    for (int v = 0; v < vectors; ++v) even[v] += load(last + v * lanes) * weights[i];
  }
#pragma GCC unroll 16
  for (int v = 0; v < vectors; ++v) {
    even[v] += odd[v];
    std::memcpy(out + d + v * lanes, &even[v], sizeof even[v]);
  }
}

// The sum of some rows of a matrix, weighted.
template <typename T>
inline void gather(const T* weights, const int32_t* keys, int64_t count, const Rows<T>& matrix, T* out) {
  constexpr int lanes = Simd<T>::lanes;
  int64_t d = 0;
  for (; d + wide * lanes <= matrix.width(); d += wide * lanes) {
    gather_at<wide>(d, weights, keys, count, matrix, out);
  }
  for (; d < matrix.width(); d += lanes) gather_at<1>(d, weights, keys, count, matrix, out);
}

}  // namespace entmax

// Attention of single queries to cached keys, with α-entmax; without α, with max(·, 0) of the scores (rela.py).

#pragma once

#include <vector>

#include "lanes.h"
#include "threads.h"

namespace decoding {

using namespace entmax;

// Add the entrywise products of a row with four others to four vectors, the entries of which sum to dot products.
template <typename T>
ENTMAX_INLINE void products(const T* a, const T* const* b, int64_t width, Vec<T>* totals) {
  constexpr int lanes = Simd<T>::lanes;
  int64_t d = 0;
  for (; d + lanes <= width; d += lanes) {
    const Vec<T> part = load(a + d);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) totals[i] += part * load(b[i] + d);
  }
  if (d == width) return;
  const Vec<T> part = load(a + d, width - d);
  for (int i = 0; i < 4; ++i) totals[i] += part * load(b[i] + d, width - d);
}

// The sums of the entries of each of four vectors.
template <typename T>
ENTMAX_INLINE void sums(const Vec<T>* v, T* to) {
#ifdef __AVX512F__
  if constexpr (std::is_same<T, float>::value) {
    // Interleaved and added, so that each quarter of a vector holds a part of all four sums.
    const auto both = [](__m512 a, __m512 b) {
      return (__m512d)_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    };
    const __m512d ab = both((__m512)v[0], (__m512)v[1]), cd = both((__m512)v[2], (__m512)v[3]);
    const __m512 all = (__m512)_mm512_unpacklo_pd(ab, cd) + (__m512)_mm512_unpackhi_pd(ab, cd);
    const __m256 half = _mm512_castps512_ps256(all) + _mm512_extractf32x8_ps(all, 1);
    _mm_storeu_ps(to, _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1));
    return;
  }
#endif
  for (int i = 0; i < 4; ++i) to[i] = sum<T>(v[i]);
}

// The keys and values of a query: in one row side by side, and so the heads of each.
template <typename T>
struct Keys {
  const T* rows;
  const int32_t* places;  // the row of each key; null if key j is in row j
  int64_t count, stride, width;
  const T* key(int64_t j) const { return rows + (places == nullptr ? j : places[j]) * stride; }
  const T* value(int64_t j) const { return key(j) + width; }
};

// Each pair of a query and a head is a row of α-entmax; a tile computes as many rows as a vector has lanes.
template <typename T>
class Attention {
 public:
  static constexpr int lanes = Simd<T>::lanes;

  // `keys`: of each query, at most `most`.
  Attention(const Keys<T>* keys, int64_t most, int64_t heads, int64_t head_dim, const double* alpha)
      : keys_(keys),
        most_(most),
        heads_(heads),
        head_dim_(head_dim),
        alpha_(alpha),
        power_(alpha == nullptr ? Power::any_alpha : power_of(alpha, heads)),
        lanes_(most + 1, Stop::alone),
        supports_(most + 1),
        support_(most + 1) {}

  // Compute pairs first … first + pairs − 1; queries and outputs have the heads side by side. Unless null, `weights`
  // has a row of `most` entries for each pair; entries without a key are left as they are.
  void tile(int64_t first, int64_t pairs, const T* queries, int64_t query_row, T* out, int64_t out_row, T* weights) {
    IntVec<T> counts = {};
    columns_ = 1;
    each_query(first, pairs, [&](int64_t lane, int64_t query, int64_t head, int64_t heads) {
      const int64_t count = keys_[query].count;
      score(keys_[query], lane, head, heads, queries + query * query_row);
      for (int64_t i = 0; i < heads; ++i) counts[lane + i] = count;
      columns_ = std::max(columns_, count);
    });
    const IntVec<T> broken = alpha_ == nullptr ? rectify(counts) : normalise(first, pairs, counts);
    for (Int j = 0; j < columns_; ++j) supports_[j] = bits<T>((lanes_.p[j] > 0) & (j < counts));
    each_query(first, pairs, [&](int64_t lane, int64_t query, int64_t head, int64_t heads) {
      fetch(query, lane, head, heads);
      for (int64_t i = 0; i < heads; ++i) {
        T* to = out + query * out_row + (head + i) * head_dim_;
        if (broken[lane + i]) {
          std::fill(to, to + head_dim_, std::numeric_limits<T>::quiet_NaN());
        } else {
          combine(keys_[query], lane + i, head + i, to);
        }
      }
    });
    for (int64_t lane = 0; weights != nullptr && lane < pairs; ++lane) {
      T* row = weights + (first + lane) * most_;
      const int64_t count = keys_[(first + lane) / heads_].count;
      for (int64_t j = 0; j < count; ++j) {
        row[j] = j < counts[lane] ? lanes_.p[j][lane] : T(0);
        if (broken[lane]) row[j] = std::numeric_limits<T>::quiet_NaN();
      }
    }
  }

 private:
  typedef typename Simd<T>::Int Int;

  // Call function(lane, query, head, heads) for each query of a tile; its `heads` heads from `head` on are in the lanes
  // from `lane` on. They are handled together, so that each row of keys is read from one end to the other.
  template <typename Function>
  void each_query(int64_t first, int64_t pairs, const Function& function) const {
    for (int64_t lane = 0, heads = 0; lane < pairs; lane += heads) {
      const int64_t head = (first + lane) % heads_;
      heads = std::min(heads_ - head, pairs - lane);
      function(lane, (first + lane) / heads_, head, heads);
    }
  }

  void score(const Keys<T>& cached, int64_t lane, int64_t head, int64_t heads, const T* queries) {
    const T scale = 1 / std::sqrt(static_cast<T>(head_dim_));
    for (int64_t start = 0; start < cached.count; start += 4) {
      const int64_t some = std::min<int64_t>(cached.count - start, 4);
      const T* keys[4];
      for (int64_t i = 0; i < 4; ++i) keys[i] = cached.key(start + std::min(i, some - 1)) + head * head_dim_;
      for (int64_t offset = 0; offset < heads; ++offset) {
        Vec<T> totals[4] = {};
        products(queries + (head + offset) * head_dim_, keys, head_dim_, totals);
        T scores[4];
        sums(totals, scores);
        for (int64_t i = 0; i < some; ++i) lanes_.z[start + i][lane + offset] = scores[i] * scale;
        for (int64_t i = 0; i < 4; ++i) keys[i] += head_dim_;
      }
    }
  }

  // Compute weights from scores. Returns the lanes with a score of NaN or ∞; counts of these lanes, and of other lanes
  // without weights, become 0.
  IntVec<T> normalise(int64_t first, int64_t pairs, IntVec<T>& counts) {
    Vec<T> eps;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      eps[lane] = never_zero<T>(alpha_[(first + std::min(lane, pairs - 1)) % heads_] - 1);
    }
    const IntVec<T> broken = shift(eps, counts);
    lanes_.solve(eps, columns_, power_);
    return broken;
  }

  // As normalise(), with max(·, 0) in place of α-entmax. Here ∞ is a valid weight, so that only NaN breaks a lane.
  IntVec<T> rectify(IntVec<T>& counts) {
    IntVec<T> broken = {};
    for (Int j = 0; j < columns_; ++j) {
      const Vec<T> z = j < counts ? lanes_.z[j] : Vec<T>{};
      broken |= z != z;
      lanes_.p[j] = maximum(z, Vec<T>{});
    }
    counts = broken ? IntVec<T>{} : counts;
    return broken;
  }

  // Shift the scores of each lane so that the greatest is 0, and fill up the lanes. Returns the lanes with a score of
  // NaN or ∞; counts of these lanes, and of other lanes without weights, become 0.
  IntVec<T> shift(Vec<T> eps, IntVec<T>& counts) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    Vec<T> top = -infinity + Vec<T>{};
    IntVec<T> broken = {};
    for (Int j = 0; j < columns_; ++j) {
      const Vec<T> z = j < counts ? lanes_.z[j] : -infinity + Vec<T>{};
      broken |= z != z;
      top = maximum(z, top);
    }
    broken |= top == infinity;
    counts = broken | (top == -infinity) ? IntVec<T>{} : counts;
    const Vec<T> beyond = -2 / eps;
    for (Int j = 0; j < columns_; ++j) lanes_.z[j] = j < counts ? lanes_.z[j] - top : beyond;
    lanes_.z[0] = counts > 0 ? lanes_.z[0] : Vec<T>{};  // a row of one score, so that the lane is done at once
    return broken;
  }

  // Prefetch the values that have weight in one of these heads.
  void fetch(int64_t query, int64_t lane, int64_t head, int64_t heads) const {
    const Keys<T>& cached = keys_[query];
    const uint32_t own = ((uint64_t{1} << heads) - 1) << lane;
    for (int64_t j = 0; j < cached.count; ++j) {
      if ((supports_[j] & own) == 0) continue;
      const T* value = cached.value(j) + head * head_dim_;
      for (int64_t d = 0; d < heads * head_dim_; d += 64 / sizeof(T)) __builtin_prefetch(value + d);
    }
  }

  // The weighted sum of values for a query and a head.
  void combine(const Keys<T>& cached, int64_t lane, int64_t head, T* to) {
    int64_t count = 0;
    for (int64_t j = 0; j < cached.count; ++j) {
      support_[count] = j;
      count += supports_[j] >> lane & 1;
    }
    const int64_t from = head * head_dim_;
    int64_t d = 0;
    for (; d + 4 * lanes <= head_dim_; d += 4 * lanes) combine_at<4>(cached, lane, count, from + d, 4 * lanes, to + d);
    for (; d + 2 * lanes <= head_dim_; d += 2 * lanes) combine_at<2>(cached, lane, count, from + d, 2 * lanes, to + d);
    for (; d < head_dim_; d += lanes) combine_at<1>(cached, lane, count, from + d, head_dim_ - d, to + d);
  }

  template <int vectors>
  void combine_at(const Keys<T>& cached, int64_t lane, int64_t count, int64_t from, int64_t width, T* to) const {
    Vec<T> sums[vectors] = {};
    for (int64_t i = 0; i < count; ++i) {
      const int64_t j = support_[i];
      const T weight = lanes_.p[j][lane];
      const T* value = cached.value(j) + from;
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[v] += weight * load(value + v * lanes, width - v * lanes);
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) store<T>(sums[v], to + v * lanes, width - v * lanes);
  }

  const Keys<T>* keys_;
  int64_t most_, heads_, head_dim_;
  const double* alpha_;
  Power power_;
  Lanes<T> lanes_;
  int64_t columns_ = 1;
  std::vector<uint32_t> supports_;  // for each key, the lanes in which it has weight
  std::vector<int64_t> support_;    // the keys with weight in a lane
};

template <typename T>
void attend(const Keys<T>* keys, int64_t most, int64_t queries, int64_t heads, int64_t head_dim, const double* alpha,
            const T* query, int64_t query_row, T* out, int64_t out_row, T* weights) {
  constexpr int lanes = Simd<T>::lanes;
  const int64_t pairs = queries * heads, tiles = (pairs + lanes - 1) / lanes;
  share_out(tiles, 1.0 * lanes * most * (head_dim / 4 + 16), [&](int64_t begin, int64_t end) {
    Attention<T> attention(keys, most, heads, head_dim, alpha);
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile * lanes;
      attention.tile(first, std::min<int64_t>(lanes, pairs - first), query, query_row, out, out_row, weights);
    }
  });
}

}  // namespace decoding

// Attention with α-entmax, forward and backward, for the CPU: scores, weights and output in one pass over each head.
//
// A tile has as many queries as a vector has lanes, and its scores are stored as one vector per key. Scores out of
// reach are dropped: first those 1/ε or more below the greatest score of their row, which get no weight, then more by
// a lower bound of λ. The next step depends on how many scores are left.
//   Dense: more than half of them. Weights and their gradients stay in columns, one vector per key.
//   Sparse: each query has few keys of its own. Its scores are packed to the top of its lane and solved there, and
//     its weights combine only the rows of its keys. Except for the scores, time grows with the number of weights.
// Short sequences are always dense, and their weights are saved for the backward. For long ones, λ and two more
// numbers per query are saved, from which the backward computes the weights of dense tiles again; the weights of
// sparse tiles are saved with their keys. Memory grows no faster than the number of weights that are not 0.
//
// Padded keys are left out from the start. Tensors are read and written in place, whatever their strides. Threads
// take heads, or parts of heads, as they become free; the results do not depend on which thread computes them.

#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "tile.h"

namespace {

using namespace entmax;

constexpr int64_t chunk = 256;  // queries of a head that one thread takes at a time in the forward pass

// How tensors are stored: in the dtype of the computation, or in half precision, for which it is float32.
enum Storage : int64_t { as_computed = 0, in_bfloat16 = 1, in_float16 = 2 };

// (B, H, T, D) with D contiguous.
template <typename T>
struct Heads {
  void* data;
  Storage storage;
  int64_t batch, head, row;  // strides

  void read(int64_t b, int64_t h, int64_t t, Rows<T>& to, int64_t i, T factor = 1) const {
    as_stored(b, h, t, [&](auto* from) { to.read(i, from, factor); });
  }
  void write(int64_t b, int64_t h, int64_t t, const Rows<T>& from, int64_t i, T factor = 1) const {
    as_stored(b, h, t, [&](auto* to) { from.write(i, to, factor); });
  }
  // Inlined, because GCC removes calls of a function that only prefetches, as if it had no effect.
  ENTMAX_INLINE void prefetch(int64_t b, int64_t h, int64_t t, int64_t head_dim) const {
    const int64_t size = storage == as_computed ? sizeof(T) : 2;
    const char* from = static_cast<const char*>(data) + (b * batch + h * head + t * row) * size;
    // to the second-level cache: rows may lie so far apart that they would displace each other in the first
    for (int64_t at = 0; at < head_dim * size; at += 64) __builtin_prefetch(from + at, 0, 2);
  }

 private:
  template <typename Function>
  void as_stored(int64_t b, int64_t h, int64_t t, const Function& function) const {
    const int64_t at = b * batch + h * head + t * row;
    if (storage == in_bfloat16) return function(static_cast<c10::BFloat16*>(data) + at);
    if (storage == in_float16) return function(static_cast<c10::Half*>(data) + at);
    function(static_cast<T*>(data) + at);
  }
};

struct Sizes {
  int64_t batch, heads, queries, keys, head_dim;
};

template <typename T>
struct Hidden {
  const uint8_t* padding;  // (B, S): 1 where a key is padding; or null
  const T* added;          // (T, S): added to the scores; or null
  bool causal;             // query t sees keys 0 … t
};

// Dropout of weights. A hash of the seed, the query and the key decides whether a weight is dropped, so that the
// backward drops the same weights, and the result does not depend on the threads.
struct Dropout {
  double probability;
  uint64_t seed;

  // A hash of a query's row; mixed() then combines its two halves with each key.
  uint64_t row(uint64_t number) const {  // the finalizer of SplitMix64
    uint64_t x = seed + (number + 1) * 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
  }

  static uint32_t mixed(uint32_t x) {  // "lowbias32" of Chris Wellons' hash-prospector
    x = (x ^ x >> 16) * 0x7feb352d;
    x = (x ^ x >> 15) * 0x846ca68b;
    return x ^ x >> 16;
  }

  bool keeps(uint64_t row, uint32_t key) const {
    const uint32_t hash = mixed(mixed(key + static_cast<uint32_t>(row)) ^ static_cast<uint32_t>(row >> 32));
    return hash >= probability * 0x1p32;
  }
};

// PyTorch's memory, so that its profiler sees what is allocated.
template <typename T>
struct Allocator {
  typedef T value_type;
  T* allocate(size_t n) { return static_cast<T*>(c10::GetCPUAllocator()->raw_allocate(n * sizeof(T))); }
  void deallocate(T* data, size_t) { c10::GetCPUAllocator()->raw_deallocate(data); }
  bool operator==(const Allocator&) const { return true; }
};

// The nonzero weights of some rows, row after row, and their keys, counted without padding.
template <typename T>
struct Support {
  std::vector<T, Allocator<T>> weights;
  std::vector<int32_t, Allocator<int32_t>> keys;
};

// What the forward saves for the backward; null if it is not saved.
template <typename T>
struct Saved {
  Vec<T>* columns;                  // (B, H, tiles, S): the weights; saved without any of the others
  Vec<T>* solutions;                // (B, H, tiles, 3): the greatest score, λ and rest of Solution
  int32_t* counts;                  // (B, H, tiles, lanes): number of nonzero weights, or −1 in a dense tile
  std::vector<Support<T>> support;  // (B, H, chunks): saved together with counts
};

template <typename T>
class Attention {
 public:
  static constexpr int lanes = Simd<T>::lanes;
  static constexpr int32_t is_dense = -1;

  Attention(const Sizes& sizes, const Hidden<T>& hidden, const Dropout& dropout, bool backward)
      : sizes_(sizes),
        hidden_(hidden),
        dropout_(dropout),
        keys_(sizes.keys, sizes.head_dim),
        values_(sizes.keys, sizes.head_dim),
        queries_(sizes.head_dim),
        out_(lanes, sizes.head_dim),
        place_(new int64_t[sizes.keys]),
        active_(new int64_t[sizes.keys]),
        scores_(new Vec<T>[sizes.keys]),
        lanes_(sizes.keys),
        list_(new int32_t[sizes.keys * lanes]),
        weights_(new T[sizes.keys + lanes]),
        places_(new int32_t[sizes.keys]) {
    for (int lane = 0; lane < lanes; ++lane) lane_number_[lane] = lane;
    if (backward || dropout.probability > 0) slopes_.reset(new Vec<T>[sizes.keys]);
    if (backward) {
      grads_.reset(new Tile<T>(sizes.head_dim));
      grad_keys_.reset(new Rows<T>(sizes.keys, sizes.head_dim));
      grad_values_.reset(new Rows<T>(sizes.keys, sizes.head_dim));
      terms_.reset(new Vec<T>[sizes.keys]);
    }
  }

  // Select the head to work on: copy its keys and values that are not padding, and note their places.
  void set_head(int64_t b, int64_t h, Heads<T> k, Heads<T> v, double alpha) {
    if (b == b_ && h == h_) return;
    b_ = b;
    h_ = h;
    eps_ = never_zero<T>(alpha - 1) + Vec<T>{};
    visible_ = 0;
    for (int64_t s = 0; s < sizes_.keys; ++s) {
      if (hidden_.padding != nullptr && hidden_.padding[b * sizes_.keys + s]) continue;
      k.read(b, h, s, keys_, visible_);
      v.read(b, h, s, values_, visible_);
      place_[visible_++] = s;
    }
  }

  // Set the number of the next head, and the tensors (with their numbers of rows) to prefetch while this head is worked
  // on: reading the rows of a short head from memory would take as long as all computation on it.
  void set_next(int64_t number, std::initializer_list<std::pair<Heads<T>, int64_t>> rows) {
    const int64_t calls = fetches * ((sizes_.queries + lanes - 1) / lanes);
    const int64_t most = std::max(sizes_.queries, sizes_.keys);
    next_ = {number / sizes_.heads, number % sizes_.heads, rows, 0, (most + calls - 1) / calls};
  }

  // Output of queries from first up to end; their weights too, unless null.
  void forward(int64_t first, int64_t end, Heads<T> q, Heads<T> out, T* weights, bool may_be_sparse,
               Saved<T>& saved, Support<T>* support) {
    bool sparse = may_be_sparse;
    for (; first < end; first += lanes) {
      rows_ = std::min<int64_t>(lanes, sizes_.queries - first);
      read_tile(q, first, scale(), queries_);
      fetch_ahead();
      queries_.turn();
      number_rows(first);
      const int64_t columns = score(first);
      fetch_ahead();
      find_top(columns);
      const int64_t kept = keep(columns);
      T* to_weights = weights == nullptr ? nullptr : weights + first * sizes_.keys;
      if (to_weights != nullptr) std::fill(to_weights, to_weights + rows_ * sizes_.keys, T(0));
      const Vec<T> lambda = cheap_lambda(kept);
      // after a dense tile, the rest of its chunk is taken as dense without trying
      sparse = sparse && pack(kept, columns, lambda);
      if (sparse) {
        forward_sparse(first, lambda, out, to_weights, saved, support);
      } else {
        forward_dense(first, cut(kept, lambda), lambda, out, to_weights, saved);
      }
    }
  }

  void clear_gradients() {
    grad_keys_->clear();
    grad_values_->clear();
  }

  // Write the gradients of queries, add up those of keys and values, and return that of α, from the gradient of the
  // outputs. support points to the weights of the head that are saved with their keys.
  template <bool need_alpha>
  double backward(Heads<T> q, Heads<T> grad, Heads<T> grad_q, const T* grad_weights,
                  const Saved<T>& saved, const T* support, const int32_t* support_keys) {
    double grad_alpha = 0;
    for (int64_t first = 0; first < sizes_.queries; first += lanes) {
      rows_ = std::min<int64_t>(lanes, sizes_.queries - first);
      read_tile(q, first, scale(), queries_);
      read_tile(grad, first, 1, *grads_);
      fetch_ahead();
      number_rows(first);
      const T* of_weights = grad_weights == nullptr ? nullptr : grad_weights + first * sizes_.keys;
      const int32_t* counts = saved.counts == nullptr ? nullptr : saved.counts + tile_number(first) * lanes;
      if (counts != nullptr && counts[0] != is_dense) {
        for (int64_t i = 0; i < rows_; ++i) {
          grad_alpha += backward_row<need_alpha>(i, support, support_keys, counts[i], of_weights);
          support += counts[i];
          support_keys += counts[i];
        }
      } else {
        const int64_t kept = saved.solutions == nullptr
                                 ? read_columns(saved.columns + tile_number(first) * sizes_.keys)
                                 : restore(first, saved.solutions + tile_number(first) * 3);
        grad_alpha += backward_dense<need_alpha>(kept, of_weights);
      }
      for (int64_t i = 0; i < rows_; ++i) grad_q.write(b_, h_, first + i, out_, i, scale());
    }
    return grad_alpha;
  }

  void write_gradients(Heads<T> grad_k, Heads<T> grad_v) const {
    for (int64_t j = 0; j < visible_; ++j) {
      grad_k.write(b_, h_, place_[j], *grad_keys_, j);
      grad_v.write(b_, h_, place_[j], *grad_values_, j);
    }
  }

 private:
  static constexpr T infinity = std::numeric_limits<T>::infinity();

  T scale() const { return 1 / std::sqrt(static_cast<T>(sizes_.head_dim)); }

  void read_tile(Heads<T> from, int64_t first, T factor, Tile<T>& tile) const {
    if (rows_ < lanes) tile.rows.clear();
    for (int64_t i = 0; i < rows_; ++i) from.read(b_, h_, first + i, tile.rows, i, factor);
  }

  // How many times a tile calls fetch_ahead().
  static constexpr int64_t fetches = 3;

  ENTMAX_INLINE void fetch_ahead() {
    const int64_t end = next_.row + next_.at_once;
    for (const auto& [heads, rows] : next_.rows) {
      for (int64_t t = next_.row; t < std::min(end, rows); ++t) heads.prefetch(next_.b, next_.h, t, sizes_.head_dim);
    }
    next_.row = end;
  }

  int64_t tile_number(int64_t first) const {
    const int64_t tiles = (sizes_.queries + lanes - 1) / lanes;
    return (b_ * sizes_.heads + h_) * tiles + first / lanes;
  }

  // ----------------------------------------------------------------------------------------------- dropout

  void number_rows(int64_t first) {
    if (dropout_.probability == 0) return;
    for (int lane = 0; lane < lanes; ++lane) {
      rows_hashed_[lane] = dropout_.row((b_ * sizes_.heads + h_) * sizes_.queries + first + lane);
    }
  }

  // What dropout multiplies a weight by.
  T factor(int64_t row, int64_t key) const {
    return dropout_.keeps(rows_hashed_[row], key) ? static_cast<T>(1 / (1 - dropout_.probability)) : T(0);
  }

  Vec<T> factors(int64_t key) const {
    Vec<T> all;
    for (int lane = 0; lane < lanes; ++lane) all[lane] = factor(lane, key);
    return all;
  }

  // ------------------------------------------------------------------------------------------------ scores

  // Compute the tile's scores for all keys that at least one of its queries sees; returns their number.
  int64_t score(int64_t first) {
    int64_t columns = visible_;
    if (hidden_.causal) {
      columns = std::lower_bound(place_.get(), place_.get() + visible_, first + rows_) - place_.get();
    }
    products(queries_, keys_, columns, [](int64_t j) { return j; }, scores_.get());
    if (hidden_.added != nullptr) {
      for (int64_t j = 0; j < columns; ++j) {
        const T* added = hidden_.added + first * sizes_.keys + place_[j];
        for (int64_t i = 0; i < rows_; ++i) scores_[j][i] += added[i * sizes_.keys];
      }
    }
    if (hidden_.causal) {
      const Vec<T> nothing = -infinity + Vec<T>{};
      for (int64_t j = columns - 1; j >= 0 && place_[j] > first; --j) {
        scores_[j] = lane_number_ < static_cast<T>(place_[j] - first) ? nothing : scores_[j];
      }
    }
    return columns;
  }

  // Set top_ to the greatest score of each row: NaN if a score is NaN or +inf, −inf if there is none.
  void find_top(int64_t columns) {
    const Vec<T> nothing = -infinity + Vec<T>{};
    top_ = nothing;
    IntVec<T> broken = {};
    for (int64_t j = 0; j < columns; ++j) {
      broken |= scores_[j] != scores_[j];
      top_ = maximum(scores_[j], top_);
    }
    top_ = (broken | (top_ == infinity)) ? std::numeric_limits<T>::quiet_NaN() + Vec<T>{} : top_;
    top_ = lane_number_ >= static_cast<T>(rows_) ? nothing : top_;
  }

  // Subtract the greatest score of each row, and move the columns that may get weight to the front; returns how many.
  int64_t keep(int64_t columns) {
    const Vec<T> nothing = -infinity + Vec<T>{};
    broken_ = top_ != top_;
    empty_ = top_ == nothing;
    const IntVec<T> without = broken_ | empty_;
    const bool all = any<T>(broken_);
    int64_t kept = 0;
    for (int64_t j = 0; j < columns; ++j) {
      const Vec<T> z = without ? nothing : scores_[j] - top_;
      scores_[kept] = z;
      active_[kept] = j;
      kept += any<T>(eps_ * z > -1) || all;  // without a branch, which would be unpredictable
    }
    if (kept > 0) scores_[0] = without ? Vec<T>{} : scores_[0];
    return kept;
  }

  // A lower bound of each row's λ, for scores of which the greatest is 0: two steps of Newton's method for α = 1.5, or
  // for α = 2 if the head's α is greater, where steps are cheap. It is a lower bound because λ falls as α grows.
  Vec<T> cheap_lambda(int64_t kept) const {
    constexpr T least_eps = 0.1;  // for a smaller ε, hardly any score falls out of reach
    const T eps = eps_[0];
    Vec<T> lambda = {};
    if (eps <= least_eps || eps > 1) return lambda;
    const bool linear = eps > T(0.5);
    for (int step = 0; step < 2; ++step) {
      Vec<T> mass = {}, slope = {};
      if (linear) {
        for (int64_t j = 0; j < kept; ++j) {
          const Vec<T> u = maximum(scores_[j] - lambda + 1, Vec<T>{});
          mass += u;
          slope += u > 0 ? 1 + Vec<T>{} : Vec<T>{};
        }
        lambda += (mass - 1) / slope;
      } else {
        for (int64_t j = 0; j < kept; ++j) {
          const Vec<T> u = maximum(T(0.5) * (scores_[j] - lambda) + 1, Vec<T>{});
          mass += u * u;
          slope += u;
        }
        lambda += 2 * (mass - root(mass)) / slope;
      }
    }
    return lambda;
  }

  // Drop the columns that cheap_lambda puts out of reach of all rows; returns how many are left.
  int64_t cut(int64_t kept, Vec<T> lambda) {
    if (any<T>(broken_)) return kept;
    const Vec<T> least = lambda - (1 + 8 * std::numeric_limits<T>::epsilon()) / eps_;
    int64_t left = 0;
    for (int64_t j = 0; j < kept; ++j) {
      const Vec<T> z = scores_[j];
      scores_[left] = z;
      active_[left] = active_[j];
      left += any<T>(z > least) || j == 0;
    }
    return left;
  }

  // ------------------------------------------------------------------------------------------------- dense

  void forward_dense(int64_t first, int64_t kept, Vec<T> lambda, Heads<T> out, T* weights, Saved<T>& saved) {
    std::swap(scores_, lanes_.z);
    const auto solution = lanes_.solve(eps_, kept, lambda);
    mark_rows(kept);
    fetch_ahead();
    const Vec<T>* p = lanes_.p.get();
    combine(dropped(kept), kept, values_, active_.get(), rows_, out_);
    for (int64_t i = 0; i < rows_; ++i) out.write(b_, h_, first + i, out_, i);
    if (weights != nullptr) {
      for (int64_t i = 0; i < rows_; ++i) {
        for (int64_t j = 0; j < kept; ++j) weights[i * sizes_.keys + place_[active_[j]]] = p[j][i];
      }
    }
    if (saved.columns != nullptr) {
      Vec<T>* columns = saved.columns + tile_number(first) * sizes_.keys;
      std::fill(columns, columns + sizes_.keys, Vec<T>{});
      for (int64_t j = 0; j < kept; ++j) columns[active_[j]] = p[j];
    }
    save(first, solution, saved);
    if (saved.counts != nullptr) std::fill_n(saved.counts + tile_number(first) * lanes, lanes, is_dense);
  }

  void save(int64_t first, const typename Lanes<T>::Solution& solution, Saved<T>& saved) const {
    if (saved.solutions == nullptr) return;
    Vec<T>* solutions = saved.solutions + tile_number(first) * 3;
    solutions[0] = top_;
    solutions[1] = solution.lambda;
    solutions[2] = solution.rest;
  }

  // Set the weights to NaN in rows with a score of NaN or +inf, and to 0 in rows without keys.
  void mark_rows(int64_t kept) {
    if (!any<T>(broken_ | empty_)) return;
    for (int64_t j = 0; j < kept; ++j) {
      const Vec<T> p = broken_ ? std::numeric_limits<T>::quiet_NaN() + Vec<T>{} : lanes_.p[j];
      lanes_.p[j] = empty_ ? Vec<T>{} : p;
    }
  }

  // Weights after dropout.
  const Vec<T>* dropped(int64_t kept) {
    if (dropout_.probability == 0) return lanes_.p.get();
    for (int64_t i = 0; i < kept; ++i) slopes_[i] = lanes_.p[i] * factors(active_[i]);
    return slopes_.get();
  }

  // Read saved weights; returns how many columns are not 0.
  int64_t read_columns(const Vec<T>* columns) {
    int64_t kept = 0;
    for (int64_t j = 0; j < visible_; ++j) {
      if (!any<T>(columns[j] != T(0))) continue;
      lanes_.p[kept] = columns[j];
      active_[kept++] = j;
    }
    return kept;
  }

  // Compute the weights again from saved solutions; returns how many columns may not be 0.
  int64_t restore(int64_t first, const Vec<T>* solutions) {
    queries_.turn();
    const int64_t columns = score(first);
    top_ = solutions[0];
    const int64_t kept = keep(columns);
    std::swap(scores_, lanes_.z);
    lanes_.restore(eps_, kept, {solutions[1], solutions[2]});
    mark_rows(kept);
    return kept;
  }

  template <bool need_alpha>
  double backward_dense(int64_t kept, const T* grad_weights) {
    const Vec<T> reciprocal_eps = 1 / eps_;
    const Vec<T>* p = lanes_.p.get();
    grads_->turn();
    spread(dropped(kept), kept, grads_->rows, active_.get(), *grad_values_);
    fetch_ahead();
    products(*grads_, values_, kept, [this](int64_t i) { return active_[i]; }, scores_.get());
    Vec<T> total = {}, product = {};
    for (int64_t i = 0; i < kept; ++i) {
      if (dropout_.probability > 0) scores_[i] *= factors(active_[i]);
      if (grad_weights != nullptr) {
        for (int64_t row = 0; row < rows_; ++row) {
          scores_[i][row] += grad_weights[row * sizes_.keys + place_[active_[i]]];
        }
      }
      terms<T, need_alpha>(p[i], eps_, reciprocal_eps, slopes_[i], terms_[i]);
      total += slopes_[i];
      product += slopes_[i] * scores_[i];
    }
    fetch_ahead();
    const Vec<T> mean = product / (total != 0 ? total : total + 1);  // 0 without any weight; a NaN stays
    Vec<T> sums = {};
    for (int64_t i = 0; i < kept; ++i) {
      const Vec<T> centred = scores_[i] - mean;
      scores_[i] = slopes_[i] * centred;
      if (need_alpha) sums -= terms_[i] * centred;
    }
    spread(scores_.get(), kept, queries_.rows, active_.get(), *grad_keys_);
    combine(scores_.get(), kept, keys_, active_.get(), rows_, out_);
    return need_alpha ? sum<T>(sums) : 0;
  }

  // ------------------------------------------------------------------------------------------------ sparse

  // Pack the scores within reach to the top of each lane, unless there are so many that dense is faster.
  bool pack(int64_t kept, int64_t columns, Vec<T> lambda) {
    if (any<T>(broken_)) return false;
    int64_t left = 0;
    for (int64_t j = 0; j < kept; ++j) left += __builtin_popcount(bits<T>(eps_ * (scores_[j] - lambda) > -1));
    if (2 * left > columns * lanes) return false;
    std::fill_n(count_, lanes, 0);
    T* z = reinterpret_cast<T*>(lanes_.z.get());
    for (int64_t j = 0; j < kept; ++j) {
      uint32_t within = bits<T>(eps_ * (scores_[j] - lambda) > -1);
      for (; within != 0; within &= within - 1) {
        const int lane = __builtin_ctz(within);
        const int64_t at = count_[lane]++ * lanes + lane;
        z[at] = scores_[j][lane];
        list_[at] = active_[j];
      }
    }
    packed_ = 1;
    for (int lane = 0; lane < lanes; ++lane) {
      if (lane >= rows_ || empty_[lane]) count_[lane] = 0;
      packed_ = std::max(packed_, count_[lane]);
    }
    const T out_of_reach = -2 / eps_[0];
    for (int lane = 0; lane < lanes; ++lane) {
      if (count_[lane] == 0) z[lane] = 0;  // a row of one score, so that the lane is done at once
      for (int64_t j = std::max<int64_t>(count_[lane], 1); j < packed_; ++j) z[j * lanes + lane] = out_of_reach;
    }
    return true;
  }

  void forward_sparse(int64_t first, Vec<T> lambda, Heads<T> out, T* weights, Saved<T>& saved, Support<T>* support) {
    save(first, lanes_.solve(eps_, packed_, lambda), saved);
    const T* p = reinterpret_cast<const T*>(lanes_.p.get());
    int32_t* counts = saved.counts == nullptr ? nullptr : saved.counts + tile_number(first) * lanes;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      int64_t count = 0;
      for (int64_t j = 0; j < count_[lane]; ++j) {
        weights_[count] = p[j * lanes + lane];
        places_[count] = list_[j * lanes + lane];
        count += weights_[count] > 0;
      }
      if (counts != nullptr) {
        counts[lane] = count;
        support->weights.insert(support->weights.end(), weights_.get(), weights_.get() + count);
        support->keys.insert(support->keys.end(), places_.get(), places_.get() + count);
      }
      if (lane >= rows_) continue;
      if (weights != nullptr) {
        for (int64_t j = 0; j < count; ++j) weights[lane * sizes_.keys + place_[places_[j]]] = weights_[j];
      }
      if (dropout_.probability > 0) {
        for (int64_t j = 0; j < count; ++j) weights_[j] *= factor(lane, places_[j]);
      }
      gather(weights_.get(), places_.get(), count, values_, out_.row(lane));
      out.write(b_, h_, first + lane, out_, lane);
    }
  }

  template <bool need_alpha>
  double backward_row(int64_t row, const T* weights, const int32_t* keys, int64_t count, const T* grad_weights) {
    const int64_t width = keys_.width();
    const T *query = queries_.rows.row(row), *grad = grads_->rows.row(row);
    const Vec<T> reciprocal_eps = 1 / eps_;
    T* grads = reinterpret_cast<T*>(scores_.get());
    for (int64_t j = 0; j < count; ++j) {
      grads[j] = dot(grad, values_.row(keys[j]), width);
      if (dropout_.probability > 0) grads[j] *= factor(row, keys[j]);
      if (grad_weights != nullptr) grads[j] += grad_weights[row * sizes_.keys + place_[keys[j]]];
    }
    Vec<T> total = {}, product = {};
    for (int64_t j = 0; j < count; j += lanes) {
      Vec<T>&slope = slopes_[j / lanes], &term = terms_[j / lanes];
      terms<T, need_alpha>(load(weights + j, count - j), eps_, reciprocal_eps, slope, term);
      total += slope;
      product += slope * load(grads + j, count - j);
    }
    const T mass = sum<T>(total);
    const T mean = mass > 0 ? sum<T>(product) / mass : mass;
    Vec<T> sums = {};
    for (int64_t j = 0; j < count; j += lanes) {
      const Vec<T> centred = load(grads + j, count - j) - mean;
      if (need_alpha) sums -= terms_[j / lanes] * centred;
      store<T>(slopes_[j / lanes] * centred, grads + j, count - j);
    }
    for (int64_t j = 0; j < count; ++j) {
      const T weight = dropout_.probability > 0 ? weights[j] * factor(row, keys[j]) : weights[j];
      add_scaled(grad, weight, width, grad_values_->row(keys[j]));
      add_scaled(query, grads[j], width, grad_keys_->row(keys[j]));
    }
    gather(grads, keys, count, keys_, out_.row(row));
    return need_alpha ? sum<T>(sums) : 0;
  }

  struct Next {
    int64_t b, h;
    std::vector<std::pair<Heads<T>, int64_t>> rows;
    int64_t row, at_once;  // the next row to prefetch, and how many rows at a time
  };

  Sizes sizes_;
  Hidden<T> hidden_;
  Dropout dropout_;
  Next next_ = {};
  Rows<T> keys_, values_;
  Tile<T> queries_;
  Rows<T> out_;
  std::unique_ptr<Tile<T>> grads_;
  std::unique_ptr<Rows<T>> grad_keys_, grad_values_;
  std::unique_ptr<int64_t[]> place_, active_;
  std::unique_ptr<Vec<T>[]> scores_, slopes_, terms_;
  Lanes<T> lanes_;
  std::unique_ptr<int32_t[]> list_;  // the keys of the scores that are packed, lane by lane
  std::unique_ptr<T[]> weights_;     // of one row, with their keys in places_
  std::unique_ptr<int32_t[]> places_;
  Vec<T> lane_number_, eps_, top_;
  IntVec<T> broken_, empty_;
  uint64_t rows_hashed_[lanes];
  int64_t count_[lanes];
  int64_t packed_ = 0, visible_ = 0, rows_ = 0, b_ = -1, h_ = -1;
};

// The tensors of a call; their strides lie one after the other in an array.
template <typename T>
struct Tensors {
  Storage storage;
  const int64_t* strides;

  Heads<T> operator()(const void* data, int number) const {
    const int64_t* s = strides + 3 * number;
    return {const_cast<void*>(data), storage, s[0], s[1], s[2]};
  }
};

// About as many products as are worth waking a thread for.
constexpr double grain = 1 << 18;

// Share out the items 0 … items − 1 among threads, each with its own worker from make(): one by one if their costs
// differ, else in long runs of neighbours, which lie side by side in memory.
template <typename Make, typename Work>
void share_out(const Sizes& sizes, int64_t items, bool alike, const Make& make, const Work& work) {
  const double cost = 1.0 * sizes.batch * sizes.heads * sizes.queries * sizes.keys * (sizes.head_dim + 32);
  const int64_t threads = std::min<double>(cost / grain + 1, at::get_num_threads());
  const int64_t run = alike ? items / (threads * 4) + 1 : 1;
  std::atomic<int64_t> next{0};
  at::parallel_for(0, std::min(threads, items), 1, [&](int64_t, int64_t) {
    auto worker = make();
    for (int64_t item = next.fetch_add(run); item < items; item = next.fetch_add(run)) {
      for (int64_t i = item; i < std::min(item + run, items); ++i) work(*worker, i);
    }
  });
}

// The order of heads. If tiles may be sparse, heads with a small α come first: they have the most weights, and heads
// that take longest must not come last. Otherwise, the order is that in memory.
std::vector<int64_t> in_order(const Sizes& sizes, const double* alpha, int64_t alphas, bool may_be_sparse) {
  std::vector<int64_t> order(sizes.batch * sizes.heads);
  std::iota(order.begin(), order.end(), 0);
  if (!may_be_sparse) return order;
  const auto of = [&](int64_t i) { return alpha[i % sizes.heads % alphas]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return of(a) < of(b); });
  return order;
}

// Whether a head and the next one fit into the second-level cache.
bool is_short(const Sizes& sizes) { return std::max(sizes.queries, sizes.keys) <= chunk; }

template <typename T>
void forward(const Sizes& sizes, const Tensors<T>& heads, const void* q, const void* k, const void* v, void* out,
             const double* alpha, int64_t alphas, const Hidden<T>& hidden, const Dropout& dropout, bool may_be_sparse,
             T* weights, Saved<T>& saved) {
  const int64_t t = sizes.queries, s = sizes.keys, chunks = (t + chunk - 1) / chunk;
  const int64_t items = sizes.batch * sizes.heads * chunks;
  if (saved.counts != nullptr) saved.support.resize(sizes.batch * sizes.heads * chunks);
  const auto order = in_order(sizes, alpha, alphas, may_be_sparse);
  share_out(
      sizes, items, !may_be_sparse,
      [&] { return std::make_unique<Attention<T>>(sizes, hidden, dropout, false); },
      [&](Attention<T>& attention, int64_t item) {
        const int64_t i = order[item / chunks], part = item % chunks;
        const int64_t h = i % sizes.heads, first = part * chunk;
        attention.set_head(i / sizes.heads, h, heads(k, 1), heads(v, 2), alpha[h % alphas]);
        if (!may_be_sparse && is_short(sizes) && item + 1 < items) {
          attention.set_next(order[item + 1],
                             {{heads(q, 0), t}, {heads(k, 1), s}, {heads(v, 2), s}, {heads(out, 3), t}});
        }
        attention.forward(first, std::min(first + chunk, sizes.queries), heads(q, 0), heads(out, 3),
                          weights == nullptr ? nullptr : weights + i * sizes.queries * sizes.keys, may_be_sparse,
                          saved, saved.counts == nullptr ? nullptr : &saved.support[i * chunks + part]);
      });
}

template <typename T>
void backward(const Sizes& sizes, const Tensors<T>& heads, const void* q, const void* k, const void* v,
              const void* grad, void* grad_q, void* grad_k, void* grad_v, const double* alpha, int64_t alphas,
              const Hidden<T>& hidden, const Dropout& dropout, const T* grad_weights, const Saved<T>& saved,
              const T* support, const int32_t* support_keys, double* grad_alpha) {
  const int64_t t = sizes.queries, s = sizes.keys, items = sizes.batch * sizes.heads;
  std::vector<int64_t> starts(items);
  if (saved.counts != nullptr) {
    const int64_t rows = round_up(sizes.queries, Simd<T>::lanes);
    int64_t start = 0;
    for (size_t i = 0; i < starts.size(); ++i) {
      starts[i] = start;
      for (int64_t row = 0; row < rows; ++row) start += std::max(saved.counts[i * rows + row], 0);
    }
  }
  const auto order = in_order(sizes, alpha, alphas, saved.counts != nullptr);
  share_out(
      sizes, items, saved.counts == nullptr,
      [&] { return std::make_unique<Attention<T>>(sizes, hidden, dropout, true); },
      [&](Attention<T>& attention, int64_t item) {
        const int64_t i = order[item], b = i / sizes.heads, h = i % sizes.heads;
        attention.set_head(b, h, heads(k, 1), heads(v, 2), alpha[h % alphas]);
        attention.clear_gradients();
        if (saved.counts == nullptr && is_short(sizes) && item + 1 < items) {
          attention.set_next(order[item + 1],
                             {{heads(q, 0), t}, {heads(k, 1), s}, {heads(v, 2), s}, {heads(grad, 3), t},
                              {heads(grad_q, 4), t}, {heads(grad_k, 5), s}, {heads(grad_v, 6), s}});
        }
        const auto head = [&](auto need_alpha) {
          return attention.template backward<decltype(need_alpha)::value>(
              heads(q, 0), heads(grad, 3), heads(grad_q, 4),
              grad_weights == nullptr ? nullptr : grad_weights + i * sizes.queries * sizes.keys, saved,
              support + starts[i], support_keys + starts[i]);
        };
        if (grad_alpha == nullptr) {
          head(std::false_type{});
        } else {
          grad_alpha[i] = head(std::true_type{});
        }
        attention.write_gradients(heads(grad_k, 5), heads(grad_v, 6));
      });
}

// Moves the support into arrays, whose length is the number that forward returned.
template <typename T>
void collect(std::vector<Support<T>>& support, T* weights, int32_t* keys) {
  for (Support<T>& part : support) {
    weights = std::copy(part.weights.begin(), part.weights.end(), weights);
    keys = std::copy(part.keys.begin(), part.keys.end(), keys);
    part = {};
  }
}

}  // namespace

// -------------------------------------------------------------------------------- what cpu.py calls, by ctypes

// n holds the numbers of _numbers() in cpu.py. forward writes two numbers to collected: how many weights are saved
// with their keys, and the address at which they stay until collect is called.

#define ATTENTION_FOR(T, SUFFIX)                                                                                       \
  extern "C" int64_t attention_forward_##SUFFIX(                                                                       \
      const int64_t* n, const void* q, const void* k, const void* v, void* out, const double* alpha,                   \
      const uint8_t* padding, const T* added, T* weights, void* columns, void* solutions, int32_t* counts,             \
      double dropout, int64_t may_be_sparse, int64_t* collected) {                                                     \
    const Alphas range = check(alpha, n[6]);                                                                           \
    if (range == out_of_range) return range;                                                                           \
    Saved<T> saved{static_cast<Vec<T>*>(columns), static_cast<Vec<T>*>(solutions), counts, {}};                        \
    forward<T>({n[0], n[1], n[2], n[3], n[4]}, {static_cast<Storage>(n[5]), n + 9}, q, k, v, out, alpha, n[6],         \
               {padding, added, n[7] != 0}, {dropout, static_cast<uint64_t>(n[8])}, may_be_sparse != 0, weights,       \
               saved);                                                                                                 \
    if (counts == nullptr) return range;                                                                               \
    collected[0] = 0;                                                                                                  \
    for (const auto& part : saved.support) collected[0] += part.weights.size();                                        \
    collected[1] = reinterpret_cast<int64_t>(new std::vector<Support<T>>(std::move(saved.support)));                   \
    return range;                                                                                                      \
  }                                                                                                                    \
  extern "C" int64_t attention_lanes_##SUFFIX() { return Simd<T>::lanes; }                                             \
  extern "C" void attention_collect_##SUFFIX(int64_t from, T* weights, int32_t* keys) {                                \
    std::unique_ptr<std::vector<Support<T>>> support(reinterpret_cast<std::vector<Support<T>>*>(from));                \
    collect<T>(*support, weights, keys);                                                                               \
  }                                                                                                                    \
  extern "C" void attention_backward_##SUFFIX(                                                                         \
      const int64_t* n, const void* q, const void* k, const void* v, const void* grad, void* grad_q, void* grad_k,     \
      void* grad_v, const double* alpha, const uint8_t* padding, const T* added, const T* grad_weights,                \
      void* solutions, void* columns, int32_t* counts, const T* support, const int32_t* support_keys,                  \
      double* grad_alpha, double dropout) {                                                                            \
    const Saved<T> saved{static_cast<Vec<T>*>(columns), static_cast<Vec<T>*>(solutions), counts, {}};                  \
    backward<T>({n[0], n[1], n[2], n[3], n[4]}, {static_cast<Storage>(n[5]), n + 9}, q, k, v, grad, grad_q, grad_k,    \
                grad_v, alpha, n[6], {padding, added, n[7] != 0}, {dropout, static_cast<uint64_t>(n[8])},              \
                grad_weights, saved, support, support_keys, grad_alpha);                                               \
  }

ATTENTION_FOR(float, float32)
ATTENTION_FOR(double, float64)

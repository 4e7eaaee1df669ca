// Attention with α-entmax in one pass over each head, forward and backward, for the CPU.
//
// As many queries as a vector has lanes are a tile, each query in a lane of its own: scores, weights and their
// gradients are columns, one vector for each key. Padded keys are left out before all else, and keys to which no
// query of a tile gives any weight cost nothing after the scores: neither in the product with the values nor in the
// backward. Queries, keys and values are read, and outputs and gradients written, where they lie.

#include <ATen/Parallel.h>

#include "../entmax/lanes.h"

namespace {

using namespace entmax;

constexpr int64_t column_group = 4;  // columns, and lanes, worked on at once: their sums stay in registers
constexpr int64_t lane_group = 8;

// (B, H, T, D) with D contiguous.
template <typename T>
struct Heads {
  T* data;
  int64_t batch, head, row;  // strides

  T* at(int64_t b, int64_t h, int64_t t) const { return data + b * batch + h * head + t * row; }
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

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Vectors of a head, each filled up with zeros to whole SIMD vectors.
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

  void read(int64_t i, const T* from, T factor = 1) {
    T* to = row(i);
    for (int64_t d = 0; d < head_dim_; ++d) to[d] = from[d] * factor;
  }
  void write(int64_t i, T* to, T factor = 1) const {
    const T* from = row(i);
    for (int64_t d = 0; d < head_dim_; ++d) to[d] = from[d] * factor;
  }

 private:
  int64_t width_, rows_, head_dim_;
  std::unique_ptr<Vec<T>[]> data_;
};

template <typename T>
class Attention {
 public:
  static constexpr int lanes = Simd<T>::lanes;

  Attention(const Sizes& sizes, bool backward)
      : sizes_(sizes),
        keys_(round_up(sizes.keys, column_group), sizes.head_dim),
        values_(round_up(sizes.keys, column_group), sizes.head_dim),
        tile_(lanes, sizes.head_dim),
        out_(lanes, sizes.head_dim),
        turned_(new Vec<T>[sizes.head_dim]),
        place_(new int64_t[round_up(sizes.keys, column_group)]),
        active_(new int64_t[sizes.keys]),
        scores_(new Vec<T>[round_up(sizes.keys, column_group)]),
        lanes_(sizes.keys) {
    for (int lane = 0; lane < lanes; ++lane) lane_number_[lane] = lane;
    if (backward) {
      grad_keys_.reset(new Rows<T>(sizes.keys, sizes.head_dim));
      grad_values_.reset(new Rows<T>(sizes.keys, sizes.head_dim));
      slopes_.reset(new Vec<T>[sizes.keys]);
      terms_.reset(new Vec<T>[sizes.keys]);
    }
  }

  // Output of one head; its weights too, unless null, and in saved the columns of weights for the backward.
  void forward(int64_t b, int64_t h, Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> out, double alpha,
               const Hidden<T>& hidden, T* weights, Vec<T>* saved) {
    gather_keys(b, h, k, v, hidden.padding);
    const T scale = 1 / std::sqrt(static_cast<T>(sizes_.head_dim));
    const Vec<T> eps = never_zero<T>(alpha - 1) + Vec<T>{};
    for (int64_t first = 0; first < sizes_.queries; first += lanes, saved += sizes_.keys) {
      const int64_t rows = std::min<int64_t>(lanes, sizes_.queries - first);
      read_tile(q, b, h, first, rows, scale);
      turn_tile();
      int64_t columns = columns_seen(first + rows, hidden.causal);
      products(keys_, columns, scores_.get());
      hide(hidden, first, columns);
      std::fill(saved, saved + sizes_.keys, Vec<T>{});
      const int64_t kept = shift_and_keep(eps, columns);
      lanes_.solve(eps, kept);
      for (int64_t i = 0; i < kept; ++i) {
        lanes_.p[i] = broken_ ? Vec<T>(std::numeric_limits<T>::quiet_NaN() + Vec<T>{}) : lanes_.p[i];
        lanes_.p[i] = empty_ ? Vec<T>{} : lanes_.p[i];
        saved[active_[i]] = lanes_.p[i];
      }
      combine(lanes_.p.get(), kept, values_);
      for (int64_t i = 0; i < rows; ++i) out_.write(i, out.at(b, h, first + i));
      if (weights != nullptr) write_weights(weights + first * sizes_.keys, kept);
    }
  }

  // Gradients of one head, from its saved weights and that of its output; returns that of α.
  template <bool need_alpha>
  double backward(int64_t b, int64_t h, Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<const T> grad,
                  Heads<T> grad_q, Heads<T> grad_k, Heads<T> grad_v, double alpha, const uint8_t* padding,
                  const T* grad_weights, const Vec<T>* saved) {
    gather_keys(b, h, k, v, padding);
    grad_keys_->clear();
    grad_values_->clear();
    const T scale = 1 / std::sqrt(static_cast<T>(sizes_.head_dim));
    const Vec<T> eps = never_zero<T>(alpha - 1) + Vec<T>{}, reciprocal_eps = 1 / eps;
    double grad_alpha = 0;
    for (int64_t first = 0; first < sizes_.queries; first += lanes, saved += sizes_.keys) {
      const int64_t rows = std::min<int64_t>(lanes, sizes_.queries - first);
      read_tile(grad, b, h, first, rows, 1);
      turn_tile();
      int64_t kept = 0;
      for (int64_t j = 0; j < found_; ++j) {
        if (any<T>(saved[j] != T(0))) active_[kept++] = j;
      }
      Vec<T>* p = lanes_.p.get();
      for (int64_t i = 0; i < kept; ++i) p[i] = saved[active_[i]];
      spread(p, kept, *grad_values_);
      Vec<T> total = {}, product = {};
      for (int64_t i = 0; i < kept; ++i) {
        Vec<T> g = product_with(values_.row(active_[i]));
        if (grad_weights != nullptr) g += weights_gradient(grad_weights + first * sizes_.keys, active_[i]);
        terms<T, need_alpha>(p[i], eps, reciprocal_eps, slopes_[i], terms_[i]);
        scores_[i] = g;
        total += slopes_[i];
        product += slopes_[i] * g;
      }
      const Vec<T> mean = product / (total != 0 ? total : total + 1);  // 0 without any weight; a NaN stays
      Vec<T> sums = {};
      for (int64_t i = 0; i < kept; ++i) {
        const Vec<T> centred = scores_[i] - mean;
        scores_[i] = slopes_[i] * centred;
        if (need_alpha) sums -= terms_[i] * centred;
      }
      if (need_alpha) grad_alpha += sum<T>(sums);
      read_tile(q, b, h, first, rows, scale);
      spread(scores_.get(), kept, *grad_keys_);
      combine(scores_.get(), kept, keys_);
      for (int64_t i = 0; i < rows; ++i) out_.write(i, grad_q.at(b, h, first + i), scale);
    }
    for (int64_t j = 0; j < found_; ++j) {
      grad_keys_->write(j, grad_k.at(b, h, place_[j]));
      grad_values_->write(j, grad_v.at(b, h, place_[j]));
    }
    return grad_alpha;
  }

 private:
  // Keys and values that are not padding, one after the other, and their places.
  void gather_keys(int64_t b, int64_t h, Heads<const T> k, Heads<const T> v, const uint8_t* padding) {
    found_ = 0;
    for (int64_t s = 0; s < sizes_.keys; ++s) {
      if (padding != nullptr && padding[b * sizes_.keys + s]) continue;
      keys_.read(found_, k.at(b, h, s));
      values_.read(found_, v.at(b, h, s));
      place_[found_++] = s;
    }
  }

  void read_tile(Heads<const T> from, int64_t b, int64_t h, int64_t first, int64_t rows, T factor) {
    if (rows < lanes) tile_.clear();
    for (int64_t i = 0; i < rows; ++i) tile_.read(i, from.at(b, h, first + i), factor);
    rows_ = rows;
  }

  // The tile with a vector over the queries for each dimension.
  void turn_tile() {
    for (int64_t d = 0; d < sizes_.head_dim; ++d) {
      for (int lane = 0; lane < lanes; ++lane) turned_[d][lane] = tile_.row(lane)[d];
    }
  }

  int64_t columns_seen(int64_t queries, bool causal) const {
    if (!causal) return found_;
    return std::lower_bound(place_.get(), place_.get() + found_, queries) - place_.get();
  }

  // Of the turned tile with each of the first rows of a matrix: a column for each row.
  void products(const Rows<T>& rows, int64_t count, Vec<T>* columns) const {
    for (int64_t j = 0; j < count; j += column_group) {
      Vec<T> sums[column_group] = {};
      const T* first = rows.row(j);
      for (int64_t d = 0; d < sizes_.head_dim; ++d) {
        for (int i = 0; i < column_group; ++i) sums[i] += turned_[d] * first[i * rows.width() + d];
      }
      for (int i = 0; i < column_group; ++i) columns[j + i] = sums[i];
    }
  }

  Vec<T> product_with(const T* row) const {
    Vec<T> even = {}, odd = {};
    int64_t d = 0;
    for (; d + 2 <= sizes_.head_dim; d += 2) {
      even += turned_[d] * row[d];
      odd += turned_[d + 1] * row[d + 1];
    }
    if (d < sizes_.head_dim) even += turned_[d] * row[d];
    return even + odd;
  }

  void hide(const Hidden<T>& hidden, int64_t first, int64_t columns) {
    if (hidden.added != nullptr) {
      for (int64_t j = 0; j < columns; ++j) {
        const T* added = hidden.added + first * sizes_.keys + place_[j];
        for (int64_t i = 0; i < rows_; ++i) scores_[j][i] += added[i * sizes_.keys];
      }
    }
    if (hidden.causal) {
      const Vec<T> nothing = -std::numeric_limits<T>::infinity() + Vec<T>{};
      for (int64_t j = columns - 1; j >= 0 && place_[j] > first; --j) {
        scores_[j] = lane_number_ < static_cast<T>(place_[j] - first) ? nothing : scores_[j];
      }
    }
  }

  // Take the greatest score off each row's, and hand on the columns that may get weight; returns how many.
  int64_t shift_and_keep(Vec<T> eps, int64_t columns) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    const Vec<T> nothing = -infinity + Vec<T>{};
    Vec<T> top = nothing;
    broken_ = IntVec<T>{};
    for (int64_t j = 0; j < columns; ++j) {
      broken_ |= scores_[j] != scores_[j];
      top = maximum(scores_[j], top);
    }
    broken_ |= top == infinity;
    empty_ = (~broken_ & (top == -infinity)) | (lane_number_ >= static_cast<T>(rows_));
    const IntVec<T> without = broken_ | empty_;
    int64_t kept = 0;
    for (int64_t j = 0; j < columns; ++j) {
      const Vec<T> z = without ? nothing : scores_[j] - top;
      if (any<T>(eps * z > -1) || any<T>(broken_)) {
        lanes_.z[kept] = z;
        active_[kept++] = j;
      }
    }
    if (kept > 0) lanes_.z[0] = without ? Vec<T>{} : lanes_.z[0];
    return kept;
  }

  // Rows of out_: for each query, the sum of a matrix's rows weighted by the query's entries in their columns.
  void combine(const Vec<T>* columns, int64_t count, const Rows<T>& rows) {
    for (int64_t d = 0; d < rows.width(); d += lanes) {
      for (int64_t lane = 0; lane < rows_; lane += lane_group) {
        Vec<T> sums[lane_group] = {};
        for (int64_t j = 0; j < count; ++j) {
          const Vec<T> row = load(rows.row(active_[j]) + d);
          const T* weight = reinterpret_cast<const T*>(columns + j) + lane;
          for (int i = 0; i < lane_group; ++i) sums[i] += row * weight[i];
        }
        for (int i = 0; i < lane_group; ++i) std::memcpy(out_.row(lane + i) + d, &sums[i], sizeof sums[i]);
      }
    }
  }

  // To each row of a matrix, add the tile's rows weighted by the entries of its column.
  void spread(const Vec<T>* columns, int64_t count, Rows<T>& rows) const {
    for (int64_t d = 0; d < rows.width(); d += lanes) {
      for (int64_t j = 0; j < count; ++j) {
        T* to = rows.row(active_[j]) + d;
        const T* weight = reinterpret_cast<const T*>(columns + j);
        Vec<T> sums[4] = {load(to)};
        for (int lane = 0; lane < lanes; lane += 4) {
          for (int i = 0; i < 4; ++i) sums[i] += load(tile_.row(lane + i) + d) * weight[lane + i];
        }
        sums[0] += sums[1] + (sums[2] + sums[3]);
        std::memcpy(to, &sums[0], sizeof sums[0]);
      }
    }
  }

  void write_weights(T* weights, int64_t kept) const {
    std::fill(weights, weights + rows_ * sizes_.keys, T(0));
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < kept; ++j) weights[i * sizes_.keys + place_[active_[j]]] = lanes_.p[j][i];
    }
  }

  Vec<T> weights_gradient(const T* grad, int64_t column) const {
    Vec<T> g = {};
    for (int64_t i = 0; i < rows_; ++i) g[i] = grad[i * sizes_.keys + place_[column]];
    return g;
  }

  Sizes sizes_;
  Rows<T> keys_, values_, tile_, out_;
  std::unique_ptr<Rows<T>> grad_keys_, grad_values_;
  std::unique_ptr<Vec<T>[]> turned_;
  std::unique_ptr<int64_t[]> place_, active_;
  std::unique_ptr<Vec<T>[]> scores_, slopes_, terms_;
  Lanes<T> lanes_;
  Vec<T> lane_number_;
  IntVec<T> broken_, empty_;
  int64_t found_ = 0, rows_ = 0;
};

template <typename T>
Heads<T> heads(T* data, const int64_t* strides) {
  return {data, strides[0], strides[1], strides[2]};
}

// About as many products as are worth waking a thread for.
constexpr int64_t grain = 1 << 18;

template <typename Function>
void for_each_head(const Sizes& sizes, const Function& function) {
  const int64_t cost = (sizes.queries * sizes.keys + 1) * (sizes.head_dim + 32);
  at::parallel_for(0, sizes.batch * sizes.heads, grain / cost + 1, function);
}

template <typename T>
void forward(const Sizes& sizes, const int64_t* strides, const T* q, const T* k, const T* v, T* out,
             const double* alpha, int64_t alphas, const Hidden<T>& hidden, T* weights, T* saved) {
  const int64_t tiles = (sizes.queries + Simd<T>::lanes - 1) / Simd<T>::lanes;
  for_each_head(sizes, [&](int64_t begin, int64_t end) {
    Attention<T> attention(sizes, false);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / sizes.heads, h = i % sizes.heads;
      attention.forward(b, h, heads(q, strides), heads(k, strides + 3), heads(v, strides + 6), heads(out, strides + 9),
                        alpha[h % alphas], hidden, weights == nullptr ? nullptr : weights + i * sizes.queries * sizes.keys,
                        reinterpret_cast<Vec<T>*>(saved) + i * tiles * sizes.keys);
    }
  });
}

template <typename T>
void backward(const Sizes& sizes, const int64_t* strides, const T* q, const T* k, const T* v, const T* grad, T* grad_q,
              T* grad_k, T* grad_v, const double* alpha, int64_t alphas, const uint8_t* padding, const T* grad_weights,
              const T* saved, double* grad_alpha) {
  const int64_t tiles = (sizes.queries + Simd<T>::lanes - 1) / Simd<T>::lanes;
  for_each_head(sizes, [&](int64_t begin, int64_t end) {
    Attention<T> attention(sizes, true);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / sizes.heads, h = i % sizes.heads;
      const auto head = [&](auto need_alpha) {
        return attention.template backward<decltype(need_alpha)::value>(
            b, h, heads(q, strides), heads(k, strides + 3), heads(v, strides + 6), heads(grad, strides + 9),
            heads(grad_q, strides + 12), heads(grad_k, strides + 15), heads(grad_v, strides + 18), alpha[h % alphas],
            padding, grad_weights == nullptr ? nullptr : grad_weights + i * sizes.queries * sizes.keys,
            reinterpret_cast<const Vec<T>*>(saved) + i * tiles * sizes.keys);
      };
      if (grad_alpha == nullptr) {
        head(std::false_type{});
      } else {
        grad_alpha[i] = head(std::true_type{});
      }
    }
  });
}

}  // namespace

// -------------------------------------------------------------------------------- what cpu.py calls, by ctypes

#define ATTENTION_FOR(T, SUFFIX)                                                                                     \
  extern "C" int64_t attention_forward_##SUFFIX(                                                                     \
      const int64_t* sizes, const int64_t* strides, const T* q, const T* k, const T* v, T* out, const double* alpha, \
      int64_t alphas, const uint8_t* padding, const T* added, int64_t causal, T* weights, T* saved) {                \
    const Alphas found = check(alpha, alphas);                                                                       \
    if (found != out_of_range) {                                                                                     \
      forward<T>({sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]}, strides, q, k, v, out, alpha, alphas,           \
                 {padding, added, causal != 0}, weights, saved);                                                     \
    }                                                                                                                \
    return found;                                                                                                    \
  }                                                                                                                  \
  extern "C" void attention_backward_##SUFFIX(const int64_t* sizes, const int64_t* strides, const T* q, const T* k,  \
                                              const T* v, const T* grad, T* grad_q, T* grad_k, T* grad_v,            \
                                              const double* alpha, int64_t alphas, const uint8_t* padding,           \
                                              const T* grad_weights, const T* saved, double* grad_alpha) {           \
    backward<T>({sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]}, strides, q, k, v, grad, grad_q, grad_k, grad_v,  \
                alpha, alphas, padding, grad_weights, saved, grad_alpha);                                            \
  }

ATTENTION_FOR(float, float32)
ATTENTION_FOR(double, float64)

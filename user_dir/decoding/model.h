// A Transformer with α-entmax attention: its weights, and the computation of its layers.

#pragma once

#include <utility>
#include <vector>

#include "attention.h"
#include "norm.h"
#include "products.h"

namespace decoding {

// ------------------------------------------------------------------------------ weights, with the fields of weights.py

template <typename T>
struct Norm {
  const T* weight;  // null: there is none
  const T* bias;
  double eps;
};

template <typename T>
struct Heads {
  const Packed<T>* in;    // queries, keys and values side by side; of context attention, queries; null: there is none
  const Packed<T>* keys;  // of context attention: keys and values of the source side by side
  const Packed<T>* out;
  const Packed<T>* scaling;  // maps the input of a block to β and γ of each head, which scale queries; null: none
  const double* alpha;       // of each head; null: max(·, 0) of the scores
  const T *norm_scale, *norm_gate;  // of the outputs of all heads; null: none
  int64_t count;

  int64_t width() const { return out->inputs; }
};

template <typename T>
struct Layer {
  Heads<T> own, context;
  Norm<T> own_norm, context_norm, final_norm;
  const Packed<T>*fc1, *fc2;
};

template <typename T>
struct Side {
  const T* embeddings;
  double scale;
  const Packed<T>* projection;  // of embeddings to the width of the layers; null: none
  const T* positions;           // added to embeddings; null: nothing
  Norm<T> embedding_norm, norm;
  const Layer<T>* layers;
  int64_t count;  // of layers
  int64_t width, embedding_width;
  int64_t pre_norm, gelu;
};

template <typename T>
struct Model {
  Side<T> encoder, decoder;
  const Packed<T>* projection;  // of features to the width of the output; null: none
  const Packed<T>* output;
  double output_alpha;  // of the α-entmax of the output; 1: softmax
};

// ------------------------------------------------------------------------------------------------------------ layers

// Memory that is kept from step to step.
template <typename T>
class Buffer {
 public:
  T* of(int64_t size) {
    if (size > static_cast<int64_t>(data_.size())) data_.resize(size);
    return data_.data();
  }

 private:
  std::vector<T> data_;
};

// fairseq computes GELU in float32.
template <typename T>
void gelu(T* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(x[i]);
    x[i] = value * 0.5f * (1 + std::erf(value * static_cast<float>(M_SQRT1_2)));
  }
}

// The pass of rows through the layers of encoder or decoder: the residual sum x, and an update not yet added to x.
template <typename T>
class Pass {
 public:
  explicit Pass(const Side<T>& side) : side_(side) {}

  void embed(const std::vector<int64_t>& symbols, const std::vector<int64_t>& positions) {
    rows_ = symbols.size();
    const int64_t width = side_.width, embedding_width = side_.embedding_width;
    x_ = sums_.of(rows_ * width);
    normal_ = normals_.of(rows_ * width);
    update_ = nullptr;
    T* embedded = side_.projection == nullptr ? x_ : inner_.of(rows_ * embedding_width);
    const T scale = static_cast<T>(side_.scale);
    for (int64_t row = 0; row < rows_; ++row) {
      const T* from = side_.embeddings + symbols[row] * embedding_width;
      for (int64_t d = 0; d < embedding_width; ++d) embedded[row * embedding_width + d] = scale * from[d];
    }
    if (side_.projection != nullptr) multiply<T>(*side_.projection, embedded, rows_, x_);
    for (int64_t row = 0; side_.positions != nullptr && row < rows_; ++row) {
      const T* from = side_.positions + positions[row] * width;
      for (int64_t d = 0; d < width; ++d) x_[row * width + d] += from[d];
    }
    if (side_.embedding_norm.weight != nullptr) normalise(side_.embedding_norm);
  }

  // Apply a layer. own and context compute its attention as attend(x, projected, stride, outputs): from the block's
  // input x and its projections, which begin with the queries, in rows of `stride`, to the outputs of all heads.
  template <typename Own, typename Context>
  void through(const Layer<T>& layer, const Own& own, const Context& context) {
    attend_by(layer.own, layer.own_norm, own);
    if (layer.context.in != nullptr) attend_by(layer.context, layer.context_norm, context);
    const T* x = begin(layer.final_norm);
    const int64_t count = rows_ * layer.fc1->outputs;
    T* hidden = inner_.of(count);
    multiply<T>(*layer.fc1, x, rows_, hidden, !side_.gelu);
    if (side_.gelu) gelu(hidden, count);
    end(*layer.fc2, hidden, layer.final_norm);
  }

  // What leaves the last layer, in rows of the side's width.
  const T* finish() {
    if (side_.norm.weight != nullptr) return normalised(side_.norm);
    for (int64_t i = 0; update_ != nullptr && i < rows_ * side_.width; ++i) x_[i] += update_[i];
    return x_;
  }

  int64_t rows() const { return rows_; }

 private:
  template <typename Attend>
  void attend_by(const Heads<T>& heads, const Norm<T>& norm, const Attend& attend) {
    const T* x = begin(norm);
    const int64_t stride = heads.in->outputs;
    T* projected = projected_.of(rows_ * stride);
    multiply<T>(*heads.in, x, rows_, projected);
    T* outputs = outputs_.of(rows_ * heads.width());
    attend(x, projected, stride, outputs);
    end(*heads.out, outputs, norm);
  }

  // The input of a block.
  const T* begin(const Norm<T>& norm) { return side_.pre_norm ? normalised(norm) : x_; }

  // End a block: its output is the product of the rows `from`.
  void end(const Packed<T>& product, const T* from, const Norm<T>& norm) {
    update_ = updates_.of(rows_ * side_.width);
    multiply<T>(product, from, rows_, update_);
    if (!side_.pre_norm) normalise(norm);
  }

  // Add the update to the sum; returns LayerNorm of the sum.
  const T* normalised(const Norm<T>& norm) {
    add_norm<T>(rows_, side_.width, x_, update_, norm.weight, norm.bias, norm.eps, normal_);
    update_ = nullptr;
    return normal_;
  }

  void normalise(const Norm<T>& norm) {
    normalised(norm);
    std::swap(x_, normal_);
  }

  const Side<T>& side_;
  int64_t rows_ = 0;
  T *x_ = nullptr, *normal_ = nullptr, *update_ = nullptr;
  Buffer<T> sums_, normals_, updates_, projected_, outputs_, inner_;
};

}  // namespace decoding

// The passes of sentences through encoder and decoder, with the caches that attention reads.

#pragma once

#include "hypotheses.h"
#include "model.h"

namespace decoding {

struct Batch {
  const int64_t* symbols;  // of all sentences, one after the other
  const int64_t* starts;   // where each sentence starts, and the end of the last
  int64_t sentences;
  const int64_t* prefix;  // (sentences, prefix_length), padded at the end, or null
  int64_t prefix_length;

  int64_t length(int64_t sentence) const { return starts[sentence + 1] - starts[sentence]; }
};

template <typename T>
struct Sentence {
  int64_t number, length;
  Hypotheses<T> hypotheses;
  std::vector<std::vector<T>> own, context;  // of each layer, rows of keys and values
  std::vector<T> attended;                   // to the source, in rows of `length`, mean over the last layer's heads

  explicit Sentence(int64_t layers) : own(layers), context(layers) {}
};

// The passes of one thread.
template <typename T>
class Passes {
 public:
  typedef std::vector<Sentence<T>*> Live;

  // `aligns`: keep the attention of hypotheses to the source.
  Passes(const Model<T>& model, const Batch& batch, int64_t beam, bool aligns)
      : model_(model),
        batch_(batch),
        beam_(beam),
        aligns_(aligns),
        encoder_(model.encoder),
        decoder_(model.decoder) {}

  // Encode sentences, and keep what the decoder attends to.
  void encode(const Live& sentences) {
    symbols_.clear();
    positions_.clear();
    int64_t longest = 0;
    for (const Sentence<T>* sentence : sentences) {
      const int64_t* from = batch_.symbols + batch_.starts[sentence->number];
      symbols_.insert(symbols_.end(), from, from + sentence->length);
      for (int64_t i = 0; i < sentence->length; ++i) positions_.push_back(i);
      longest = std::max(longest, sentence->length);
    }
    encoder_.embed(symbols_, positions_);
    for (int64_t number = 0; number < model_.encoder.count; ++number) {
      const Layer<T>& layer = model_.encoder.layers[number];
      const auto own = [&](const T* x, T* projected, int64_t stride, T* outputs) {
        const int64_t width = layer.own.width();
        keys_.clear();
        const T* rows = projected + width;
        for (const Sentence<T>* sentence : sentences) {
          keys_.insert(keys_.end(), sentence->length, {rows, nullptr, sentence->length, stride, width});
          rows += sentence->length * stride;
        }
        scale(layer.own, x, projected, stride);
        attend_to(layer.own, longest, projected, stride, outputs);
      };
      encoder_.through(layer, own, own);
    }
    const T* memory = encoder_.finish();
    for (Sentence<T>* sentence : sentences) {
      for (int64_t number = 0; number < model_.decoder.count; ++number) {
        const Packed<T>* keys = model_.decoder.layers[number].context.keys;
        if (keys == nullptr) continue;
        sentence->context[number].resize(sentence->length * keys->outputs);
        T* to = sentence->context[number].data();
        multiply<T>(*keys, memory, sentence->length, to);
      }
      memory += sentence->length * model_.encoder.width;
    }
  }

  // Read the last symbol of each hypothesis; returns the features of all hypotheses, in rows() rows.
  const T* step(const Live& live) {
    symbols_.clear();
    positions_.clear();
    for (const Sentence<T>* sentence : live) {
      const Hypotheses<T>& hypotheses = sentence->hypotheses;
      for (int64_t i = 0; i < hypotheses.count(); ++i) {
        symbols_.push_back(hypotheses.symbol(i));
        positions_.push_back(hypotheses.step());
      }
    }
    decoder_.embed(symbols_, positions_);
    for (int64_t number = 0; number < model_.decoder.count; ++number) {
      const Layer<T>& layer = model_.decoder.layers[number];
      decoder_.through(
          layer,
          [&](const T* x, T* projected, int64_t stride, T* outputs) {
            const int64_t most = append_keys(live, number, projected, stride, layer.own.width());
            scale(layer.own, x, projected, stride);
            attend_to(layer.own, most, projected, stride, outputs);
          },
          [&](const T* x, T* projected, int64_t stride, T* outputs) {
            const int64_t most = find_context(live, number, layer.context.width());
            const bool aligns = aligns_ && number == model_.decoder.count - 1;
            T* weights = aligns ? weights_.of(rows() * layer.context.count * most) : nullptr;
            scale(layer.context, x, projected, stride);
            attend_to(layer.context, most, projected, stride, outputs, weights);
            if (aligns) keep_weights(live, weights, layer.context.count, most);
          });
    }
    return decoder_.finish();
  }

  int64_t rows() const { return decoder_.rows(); }

 private:
  // Cache the new keys and values, and let each hypothesis see its own history. Returns the length of the longest.
  int64_t append_keys(const Live& live, int64_t number, const T* projected, int64_t stride, int64_t width) {
    int64_t most = 0;
    keys_.clear();
    for (Sentence<T>* sentence : live) {
      const Hypotheses<T>& hypotheses = sentence->hypotheses;
      std::vector<T>& rows = sentence->own[number];
      rows.resize(hypotheses.row(beam_) * 2 * width);
      for (int64_t i = 0; i < hypotheses.count(); ++i) {
        std::copy_n(projected + width, 2 * width, rows.data() + hypotheses.row(i) * 2 * width);
        projected += stride;
        keys_.push_back({rows.data(), hypotheses.places(i), hypotheses.step() + 1, 2 * width, width});
      }
      most = std::max(most, hypotheses.step() + 1);
    }
    return most;
  }

  // Let each hypothesis see its source. Returns the length of the longest source.
  int64_t find_context(const Live& live, int64_t number, int64_t width) {
    int64_t most = 0;
    keys_.clear();
    for (const Sentence<T>* sentence : live) {
      const T* rows = sentence->context[number].data();
      keys_.insert(keys_.end(), sentence->hypotheses.count(), {rows, nullptr, sentence->length, 2 * width, width});
      most = std::max(most, sentence->length);
    }
    return most;
  }

  // Multiply queries that see n keys by 1 + β (log n)^γ; see models/length_scaling.py.
  void scale(const Heads<T>& heads, const T* x, T* queries, int64_t stride) {
    if (heads.scaling == nullptr) return;
    const int64_t rows = keys_.size(), head_dim = heads.width() / heads.count;
    T* scales = scales_.of(rows * 2 * heads.count);
    multiply<T>(*heads.scaling, x, rows, scales);
    for (int64_t row = 0; row < rows; ++row) {
      const T log_n = std::log(std::max(2.0f, static_cast<float>(keys_[row].count)));
      for (int64_t head = 0; head < heads.count; ++head) {
        const T beta = scales[head], softplus = beta > 20 ? beta : std::log1p(std::exp(beta));
        const T factor = 1 + softplus * std::pow(log_n, 2 * std::tanh(scales[heads.count + head]));
        for (int64_t d = 0; d < head_dim; ++d) queries[head * head_dim + d] *= factor;
      }
      scales += 2 * heads.count;
      queries += stride;
    }
  }

  // Keep what each hypothesis attends to, mean over heads.
  void keep_weights(const Live& live, const T* weights, int64_t heads, int64_t most) {
    for (Sentence<T>* sentence : live) {
      const Hypotheses<T>& hypotheses = sentence->hypotheses;
      sentence->attended.resize(hypotheses.row(beam_) * sentence->length);
      for (int64_t i = 0; i < hypotheses.count(); ++i, weights += heads * most) {
        T* row = sentence->attended.data() + hypotheses.row(i) * sentence->length;
        for (int64_t j = 0; j < sentence->length; ++j) {
          row[j] = 0;
          for (int64_t head = 0; head < heads; ++head) row[j] += weights[head * most + j];
          row[j] /= heads;
        }
      }
    }
  }

  void attend_to(const Heads<T>& heads, int64_t most, const T* queries, int64_t stride, T* outputs,
                 T* weights = nullptr) {
    const int64_t rows = keys_.size(), width = heads.width(), head_dim = width / heads.count;
    attend<T>(keys_.data(), most, rows, heads.count, head_dim, heads.alpha, queries, stride, outputs, width, weights);
    if (heads.norm_scale != nullptr) gated_norm(rows, width, outputs, heads.norm_scale, heads.norm_gate);
  }

  const Model<T>& model_;
  const Batch& batch_;
  int64_t beam_;
  bool aligns_;
  Pass<T> encoder_, decoder_;
  std::vector<int64_t> symbols_, positions_;  // of rows
  std::vector<Keys<T>> keys_;
  Buffer<T> scales_, weights_;
};

}  // namespace decoding

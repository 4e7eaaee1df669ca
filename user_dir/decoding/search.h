// Translation on a CPU in one call: sentences are encoded, and their hypotheses decoded position by position.
//
// Each thread has sentences of its own. Those that it decodes at a time are at different positions: where one is
// finished, the next takes its place, so that products always have about as many rows. What is computed of a sentence
// does not depend on the others, to the bit.

#pragma once

#include <atomic>
#include <numeric>

#include "hypotheses.h"
#include "model.h"

namespace decoding {

// Rows that are enough for products to take longer than reading their weights.
constexpr int64_t most_hypotheses = 128, most_tokens = 256;
// Logits computed at once: as many as stay in the second-level cache.
constexpr int64_t most_logits = 1 << 16;

struct Batch {
  const int64_t* symbols;  // of all sentences, one after the other
  const int64_t* starts;   // of each sentence, and the end of the last
  int64_t sentences;
  const int64_t* prefix;  // (sentences, prefix_length), padded at the end, or null
  int64_t prefix_length;

  int64_t length(int64_t sentence) const { return starts[sentence + 1] - starts[sentence]; }
};

// Hypotheses of each sentence, best first.
template <typename T>
struct Results {
  int64_t* counts;   // (sentences,)
  int64_t* lengths;  // (sentences, beam), as the next
  T* scores;
  int64_t* symbols;  // (sentences, beam, longest + 1), as the next
  T* positional;
};

template <typename T>
struct Sentence {
  int64_t number, length;
  Hypotheses<T> hypotheses;
  std::vector<std::vector<T>> own, context;  // of each layer, rows of keys and values

  explicit Sentence(int64_t layers) : own(layers), context(layers) {}
};

// The sentences that a thread works on.
template <typename T>
class Search {
 public:
  Search(const Model<T>& model, const Settings& settings, const Batch& batch, const Results<T>& results, int64_t most)
      : model_(model), settings_(settings), batch_(batch), results_(results), most_(most), encoder_(model.encoder),
        decoder_(model.decoder) {}

  // Take sentences in this order, of which other threads take some, too.
  void run(const std::vector<int64_t>& order, std::atomic<int64_t>& next) {
    for (;;) {
      admit(order, next);
      if (live_.empty()) return;
      step();
    }
  }

 private:
  void admit(const std::vector<int64_t>& order, std::atomic<int64_t>& next) {
    const int64_t free = most_ - static_cast<int64_t>(live_.size());
    if (4 * free < most_) return;  // several are encoded together
    std::vector<Sentence<T>*> added;
    int64_t tokens = 0;
    const auto encode_added = [&] {
      encode(added, tokens);
      live_.insert(live_.end(), added.begin(), added.end());
      added.clear();
      tokens = 0;
    };
    for (int64_t i = 0; i < free; ++i) {
      const int64_t at = next.fetch_add(1);
      if (at >= static_cast<int64_t>(order.size())) break;
      added.push_back(begin(order[at]));
      tokens += added.back()->length;
      if (tokens >= most_tokens) encode_added();
    }
    if (!added.empty()) encode_added();
  }

  Sentence<T>* begin(int64_t number) {
    if (idle_.empty()) {
      all_.push_back(std::make_unique<Sentence<T>>(model_.decoder.count));
      idle_.push_back(all_.back().get());
    }
    Sentence<T>* sentence = idle_.back();
    idle_.pop_back();
    sentence->number = number;
    sentence->length = batch_.length(number);
    for (auto& rows : sentence->own) rows.clear();
    const int64_t* prefix = batch_.prefix == nullptr ? nullptr : batch_.prefix + number * batch_.prefix_length;
    sentence->hypotheses.start(settings_, prefix, batch_.prefix_length);
    return sentence;
  }

  void encode(const std::vector<Sentence<T>*>& sentences, int64_t tokens) {
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
        scale(layer.own, x, model_.encoder.width, projected, stride);
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
        multiply<T>(*keys, memory, sentence->length, model_.encoder.width, to, keys->outputs, false);
      }
      memory += sentence->length * model_.encoder.width;
    }
  }

  // Read the last symbol of each hypothesis, and find the next.
  void step() {
    symbols_.clear();
    positions_.clear();
    for (const Sentence<T>* sentence : live_) {
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
            const int64_t most = append_keys(number, projected, stride, layer.own.width());
            scale(layer.own, x, model_.decoder.width, projected, stride);
            attend_to(layer.own, most, projected, stride, outputs);
          },
          [&](const T* x, T* projected, int64_t stride, T* outputs) {
            const int64_t most = find_context(number, layer.context.width());
            scale(layer.context, x, model_.decoder.width, projected, stride);
            attend_to(layer.context, most, projected, stride, outputs);
          });
    }
    choose(decoder_.finish());
  }

  // Keep the keys and values of all hypotheses, and let each see those of its own history. Returns the longest.
  int64_t append_keys(int64_t number, const T* projected, int64_t stride, int64_t width) {
    int64_t most = 0;
    keys_.clear();
    for (Sentence<T>* sentence : live_) {
      const Hypotheses<T>& hypotheses = sentence->hypotheses;
      std::vector<T>& rows = sentence->own[number];
      rows.resize(hypotheses.row(settings_.beam) * 2 * width);
      for (int64_t i = 0; i < hypotheses.count(); ++i) {
        std::copy_n(projected + width, 2 * width, rows.data() + hypotheses.row(i) * 2 * width);
        projected += stride;
        keys_.push_back({rows.data(), hypotheses.places(i), hypotheses.step() + 1, 2 * width, width});
      }
      most = std::max(most, hypotheses.step() + 1);
    }
    return most;
  }

  // Let each hypothesis see its source. Returns the longest.
  int64_t find_context(int64_t number, int64_t width) {
    int64_t most = 0;
    keys_.clear();
    for (const Sentence<T>* sentence : live_) {
      const T* rows = sentence->context[number].data();
      keys_.insert(keys_.end(), sentence->hypotheses.count(), {rows, nullptr, sentence->length, 2 * width, width});
      most = std::max(most, sentence->length);
    }
    return most;
  }

  // Multiply the queries of x by 1 + β (log n)^γ, where they see n keys; see attention/length_scaling.py.
  void scale(const Heads<T>& heads, const T* x, int64_t width, T* queries, int64_t stride) {
    if (heads.scaling == nullptr) return;
    const int64_t rows = keys_.size(), head_dim = heads.width() / heads.count;
    T* found = scales_.of(rows * 2 * heads.count);
    multiply<T>(*heads.scaling, x, rows, width, found, 2 * heads.count, false);
    for (int64_t row = 0; row < rows; ++row) {
      const T log_n = std::log(std::max(2.0f, static_cast<float>(keys_[row].count)));
      for (int64_t head = 0; head < heads.count; ++head) {
        const T beta = found[head], softplus = beta > 20 ? beta : std::log1p(std::exp(beta));
        const T factor = 1 + softplus * std::pow(log_n, 2 * std::tanh(found[heads.count + head]));
        for (int64_t d = 0; d < head_dim; ++d) queries[head * head_dim + d] *= factor;
      }
      found += 2 * heads.count;
      queries += stride;
    }
  }

  void attend_to(const Heads<T>& heads, int64_t most, const T* queries, int64_t stride, T* outputs) {
    const Sentences<T> cache{keys_.data(), most};
    const int64_t rows = keys_.size(), width = heads.width();
    attend<T>(cache, rows, heads.count, width / heads.count, heads.alpha, queries, stride, outputs, width, nullptr);
  }

  void choose(const T* features) {
    const Packed<T>& output = *model_.output;
    if (model_.projection != nullptr) {
      const Packed<T>& projection = *model_.projection;
      T* projected = projected_.of(decoder_.rows() * projection.outputs);
      multiply<T>(projection, features, decoder_.rows(), projection.inputs, projected, projection.outputs, false);
      features = projected;
    }
    const int64_t symbols = output.outputs, rows = decoder_.rows();
    const Rows<T> given(output, features, rows, output.inputs);
    constexpr int64_t block = Continuations<T>::block;
    const int64_t some = std::min(std::max<int64_t>(most_logits / rows / block, 1) * block, (symbols + 15) / 16 * 16);
    T* logits = logits_.of(rows * some);
    for (Sentence<T>* sentence : live_) sentence->hypotheses.ask();
    for (int64_t begin = 0; begin < symbols; begin += some) {
      const int64_t end = std::min(begin + some, symbols);
      given.multiply(begin, end, {logits, some, false, begin});
      if (settings_.temperature != 1) divide(logits, rows * some);
      T* each = logits;
      for (Sentence<T>* sentence : live_) {
        Hypotheses<T>& hypotheses = sentence->hypotheses;
        for (int64_t i = 0; i < hypotheses.count(); ++i, each += some) hypotheses.read(i, each, begin, end);
      }
    }
    std::vector<Sentence<T>*> unfinished;
    for (Sentence<T>* sentence : live_) {
      if (sentence->hypotheses.advance()) {
        write(*sentence);
        idle_.push_back(sentence);
      } else {
        unfinished.push_back(sentence);
      }
    }
    live_.swap(unfinished);
  }

  void divide(T* logits, int64_t count) const {
    const T temperature = static_cast<T>(settings_.temperature);
    for (int64_t i = 0; i < count; ++i) logits[i] /= temperature;
  }

  void write(Sentence<T>& sentence) const {
    std::vector<Ended<T>>& ended = sentence.hypotheses.ended;
    std::stable_sort(ended.begin(), ended.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
    results_.counts[sentence.number] = ended.size();
    int64_t at = sentence.number * settings_.beam;
    for (const Ended<T>& each : ended) {
      results_.lengths[at] = each.symbols.size();
      results_.scores[at] = each.score;
      std::copy(each.symbols.begin(), each.symbols.end(), results_.symbols + at * (settings_.longest + 1));
      std::copy(each.positional.begin(), each.positional.end(), results_.positional + at * (settings_.longest + 1));
      ++at;
    }
  }

  const Model<T>& model_;
  const Settings& settings_;
  const Batch& batch_;
  const Results<T>& results_;
  int64_t most_;  // sentences at a time
  Pass<T> encoder_, decoder_;
  std::vector<std::unique_ptr<Sentence<T>>> all_;
  std::vector<Sentence<T>*> live_, idle_;
  std::vector<int64_t> symbols_, positions_;  // of rows
  std::vector<typename Sentences<T>::Keys> keys_;
  Buffer<T> projected_, logits_, scales_;
};

// Returns 0, or 1 if memory did not suffice.
template <typename T>
int64_t search(const Model<T>& model, const Settings& settings, const Batch& batch, const Results<T>& results) {
  std::vector<int64_t> order(batch.sentences);
  std::iota(order.begin(), order.end(), 0);
  // the longest first, so that threads finish at about the same time
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return batch.length(a) > batch.length(b); });
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), batch.sentences);
  const int64_t share = (batch.sentences + threads - 1) / std::max<int64_t>(threads, 1);
  const int64_t most = std::max<int64_t>(1, std::min(share, most_hypotheses / settings.beam));
  std::atomic<int64_t> next{0}, failures{0};
  const auto work = [&](int64_t, int64_t) {
    try {
      Search<T>(model, settings, batch, results, most).run(order, next);
    } catch (const std::bad_alloc&) {
      ++failures;
    }
  };
  if (threads == 1) {
    work(0, 1);  // threads then share out products
  } else {
    at::parallel_for(0, threads, 1, work);
  }
  return failures > 0;
}

}  // namespace decoding

// Translation on a CPU in one call: sentences are encoded, and their hypotheses decoded position by position.
//
// Each thread has its own sentences. It decodes several at a time, at different positions: the next sentence replaces a
// finished one, so that matrix products always have about the same number of rows. The results for a sentence do not
// depend on the other sentences, to the bit.

#pragma once

#include <atomic>
#include <numeric>

#include "passes.h"

namespace decoding {

// Numbers of rows with which matrix products take longer than reading their weights.
constexpr int64_t most_hypotheses = 128, most_tokens = 256;
// Logits computed at once: as many as stay in the second-level cache.
constexpr int64_t most_logits = 1 << 16;

// Hypotheses of each sentence, best first.
template <typename T>
struct Results {
  int64_t* counts;   // (sentences,)
  int64_t* lengths;  // (sentences, beam), like scores
  T* scores;
  int64_t* symbols;  // (sentences, beam, longest + 1), like positional
  T* positional;
  T* attended;  // (sentences, beam, longest + 1, source): what each position attends to; null: not wanted
  int64_t source;
};

// The sentences that a thread works on.
template <typename T>
class Search {
 public:
  Search(const Model<T>& model, const Settings& settings, const Batch& batch, const Results<T>& results, int64_t most)
      : model_(model), settings_(settings), batch_(batch), results_(results), most_(most),
        passes_(model, batch, settings.beam, results.attended != nullptr) {}

  // Translate sentences in this order; all threads take the next one from the same list.
  void run(const std::vector<int64_t>& order, std::atomic<int64_t>& next) {
    for (;;) {
      admit(order, next);
      if (live_.empty()) return;
      choose(passes_.step(live_));
    }
  }

 private:
  void admit(const std::vector<int64_t>& order, std::atomic<int64_t>& next) {
    const int64_t free = most_ - static_cast<int64_t>(live_.size());
    if (4 * free < most_) return;  // wait until several can be encoded together
    std::vector<Sentence<T>*> added;
    int64_t tokens = 0;
    const auto encode_added = [&] {
      passes_.encode(added);
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
    sentence->hypotheses.start(settings_, model_.output_alpha, prefix, batch_.prefix_length);
    return sentence;
  }

  void choose(const T* features) {
    const Packed<T>& output = *model_.output;
    if (model_.projection != nullptr) {
      T* projected = projected_.of(passes_.rows() * model_.projection->outputs);
      multiply<T>(*model_.projection, features, passes_.rows(), projected);
      features = projected;
    }
    const int64_t symbols = output.outputs, rows = passes_.rows();
    const Rows<T> inputs(output, features, rows);
    constexpr int64_t block = Continuations<T>::block;
    const int64_t some = std::min(std::max<int64_t>(most_logits / rows / block, 1) * block, (symbols + 15) / 16 * 16);
    T* logits = logits_.of(rows * some);
    for (Sentence<T>* sentence : live_) sentence->hypotheses.ask();
    for (int64_t begin = 0; begin < symbols; begin += some) {
      const int64_t end = std::min(begin + some, symbols);
      inputs.multiply(begin, end, {logits, some, false, begin});
      if (settings_.temperature != 1) divide(logits, rows * some);
      T* row = logits;
      for (Sentence<T>* sentence : live_) {
        Hypotheses<T>& hypotheses = sentence->hypotheses;
        for (int64_t i = 0; i < hypotheses.count(); ++i, row += some) hypotheses.read(i, row, begin, end);
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
    for (const Ended<T>& hypothesis : ended) {
      const int64_t start = at * (settings_.longest + 1);
      results_.lengths[at] = hypothesis.symbols.size();
      results_.scores[at] = hypothesis.score;
      std::copy(hypothesis.symbols.begin(), hypothesis.symbols.end(), results_.symbols + start);
      std::copy(hypothesis.positional.begin(), hypothesis.positional.end(), results_.positional + start);
      if (results_.attended != nullptr) {
        write_attended(sentence, hypothesis, results_.attended + start * results_.source);
      }
      ++at;
    }
  }

  void write_attended(const Sentence<T>& sentence, const Ended<T>& ended, T* to) const {
    for (const int32_t place : ended.places) {
      std::copy_n(sentence.attended.data() + place * sentence.length, sentence.length, to);
      to += results_.source;
    }
  }

  const Model<T>& model_;
  const Settings& settings_;
  const Batch& batch_;
  const Results<T>& results_;
  int64_t most_;  // sentences at a time
  Passes<T> passes_;
  std::vector<std::unique_ptr<Sentence<T>>> all_;
  std::vector<Sentence<T>*> live_, idle_;
  Buffer<T> projected_, logits_;
};

// Returns 0, or 1 if memory did not suffice.
template <typename T>
int64_t search(const Model<T>& model, const Settings& settings, const Batch& batch, const Results<T>& results) {
  std::vector<int64_t> order(batch.sentences);
  std::iota(order.begin(), order.end(), 0);
  // the longest first, so that threads finish at about the same time
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return batch.length(a) > batch.length(b); });
  const int64_t threads = std::min(most_threads(), batch.sentences);
  const int64_t share = (batch.sentences + threads - 1) / std::max<int64_t>(threads, 1);
  const int64_t most = std::max<int64_t>(1, std::min(share, most_hypotheses / settings.beam));
  std::atomic<int64_t> next{0};
  try {  // one sentence is translated outside of a parallel region: the threads then divide each product
    share_out_parts(threads, 1, [&](int64_t, int64_t) {
      Search<T>(model, settings, batch, results, most).run(order, next);
    });
  } catch (const std::bad_alloc&) {
    return 1;
  }
  return 0;
}

}  // namespace decoding

// The beam search of one sentence, with its unfinished and ended hypotheses; results are those of fairseq's search.

#pragma once

#include <algorithm>
#include <vector>

#include "candidates.h"

namespace decoding {

// The fields are those of Settings in native.py.
struct Settings {
  int64_t beam, longest, shortest, begin, end, padding, unknown;
  double unknown_penalty;
  int64_t normalised;
  double length_penalty;
  int64_t ngram;
  double temperature;
  const int64_t* banned;  // padding, then what is suppressed, then the end
  int64_t bans;
};

template <typename T>
struct Ended {
  std::vector<int64_t> symbols;  // with the end
  std::vector<T> positional;     // their log-probabilities
  std::vector<int32_t> places;   // the row that predicted each symbol
  T score;
};

// Each position has `beam` rows, one for each hypothesis, in which caches keep keys and values: position p has the rows
// p · beam … (p + 1) · beam − 1. Rows are never moved: each hypothesis stores the rows of its own history.
template <typename T>
class Hypotheses {
 public:
  std::vector<Ended<T>> ended;

  // Begin with one empty hypothesis. `prefix`: the symbols that all hypotheses begin with, padded at the end, or null.
  void start(const Settings& settings, double output_alpha, const int64_t* prefix, int64_t prefix_length) {
    settings_ = &settings;
    output_alpha_ = output_alpha;
    prefix_ = prefix;
    prescribed_ = prefix == nullptr ? 0 : std::min(prefix_length, settings.longest);
    step_ = 0;
    count_ = 1;
    ended.clear();
    symbols_.assign(settings.beam, settings.begin);
    sums_.assign(settings.beam, T(0));
    idle_.assign(settings.beam, false);
    stride_ = settings.longest + 1;
    places_.resize(settings.beam * stride_);
    places_[0] = 0;
  }

  int64_t step() const { return step_; }    // the position of the symbols to be read
  int64_t count() const { return count_; }  // 1 at first, then the beam
  int64_t row(int64_t i) const { return step_ * settings_->beam + i; }
  int64_t symbol(int64_t i) const { return symbols_[row(i)]; }
  const int32_t* places(int64_t i) const { return places_.data() + i * stride_; }

  // To be called at each position before read().
  void ask() {
    rules_ = find_rules();
    continuations_.resize(settings_->beam);
    for (int64_t i = 0; i < count_; ++i) continuations_[i].start(2 * settings_->beam, output_alpha_ - 1);
  }

  // Read the logits of hypothesis i for symbols begin … end − 1, and overwrite them; see Continuations.
  void read(int64_t i, T* logits, int64_t begin, int64_t end) {
    if (sums_[row(i)] > -std::numeric_limits<T>::infinity()) continuations_[i].read(logits, begin, end, i, rules_);
  }

  // To be called when all logits have been read. Returns whether the sentence is finished.
  bool advance() {
    const int64_t wanted = 2 * settings_->beam;  // because half may be ends
    values_.assign(wanted, -std::numeric_limits<T>::infinity());
    chosen_.assign(wanted, 0);
    parents_.assign(wanted, 0);
    Ranking<T> ranking{values_.data(), chosen_.data(), parents_.data(), wanted};
    for (int64_t i = 0; i < count_; ++i) {
      if (output_alpha_ == 1) {
        continuations_[i].finish(sums_[row(i)], i, ranking);
      } else {
        continuations_[i].finish_sparse(sums_[row(i)], i, rules_, ranking);
      }
    }
    if (step_ > 0 && step_ < prescribed_ && prefix_[step_] == settings_->end) {
      // as fairseq, which replaces all hypotheses by copies of the first before they end
      std::fill_n(values_.begin(), count_, values_[0]);
      std::fill_n(chosen_.begin(), count_, settings_->end);
      std::fill_n(parents_.begin(), count_, 0);
    }
    return choose();
  }

 private:
  Rules find_rules() {
    const Settings& settings = *settings_;
    int64_t bans = settings.bans - 1, only = -1;  // the last ban is the end
    if (step_ < prescribed_) {  // as in fairseq, only padding is then banned, in all sentences of the batch
      bans = 1;
      if (prefix_[step_] != settings.padding) only = prefix_[step_];
    } else if (step_ == settings.longest) {
      only = settings.end;
    } else if (step_ < settings.shortest) {
      bans = settings.bans;
    }
    find_repeated();
    return {settings.banned, bans, only, repeated_.data(), starts_.data(),
            settings.unknown, settings.unknown_penalty};
  }

  // The symbols that would repeat an n-gram of the size that is not allowed, if any.
  void find_repeated() {
    const int64_t size = settings_->ngram;
    repeated_.clear();
    starts_.assign(1, 0);
    for (int64_t i = 0; i < count_; ++i) {
      const int32_t* own = places(i);
      for (int64_t first = 1; size > 0 && first + size - 1 <= step_; ++first) {
        const auto same = [&](int64_t j) { return symbols_[own[first + j]] == symbols_[own[step_ - size + 2 + j]]; };
        int64_t j = 0;
        while (j < size - 1 && same(j)) ++j;
        if (j == size - 1) repeated_.push_back(symbols_[own[first + j]]);
      }
      starts_.push_back(repeated_.size());
    }
  }

  // End hypotheses, and go on with others.
  bool choose() {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    const int64_t beam = settings_->beam, wanted = 2 * beam;
    ends_.assign(wanted, false);
    bool full = false;
    for (int64_t i = 0; i < wanted; ++i) {
      ends_[i] = chosen_[i] == settings_->end && std::abs(values_[i]) < infinity && !(i < beam && idle_[i]);
      if (!ends_[i] || i >= beam) continue;
      if (static_cast<int64_t>(ended.size()) < beam) end(parents_[i], values_[i]);
      full |= static_cast<int64_t>(ended.size()) == beam;
    }
    if (full) return true;
    if (values_[0] == -infinity) return give_up();
    if (step_ == settings_->longest) return true;
    go_on();
    return false;
  }

  void end(int64_t i, T sum) {
    const int32_t* own = places(i);
    Ended<T> hypothesis;
    T before = 0;
    for (int64_t p = 1; p <= step_; ++p) {
      hypothesis.symbols.push_back(symbols_[own[p]]);
      hypothesis.positional.push_back(sums_[own[p]] - before);
      before = sums_[own[p]];
    }
    hypothesis.places.assign(own, own + step_ + 1);
    hypothesis.symbols.push_back(settings_->end);
    hypothesis.positional.push_back(sum - before);
    const T length = static_cast<T>(std::pow(static_cast<double>(step_ + 1), settings_->length_penalty));
    hypothesis.score = settings_->normalised ? sum / length : sum;
    ended.push_back(std::move(hypothesis));
  }

  // No continuation has a probability above 0. If no hypothesis has ended, the most probable one ends with probability
  // 0, unless only NaN in the scores can be the reason.
  bool give_up() {
    if (!ended.empty() || (prefix_ == nullptr && settings_->ngram == 0 && output_alpha_ == 1)) return true;
    const T* sums = sums_.data() + row(0);
    end(std::max_element(sums, sums + count_) - sums, -std::numeric_limits<T>::infinity());
    return true;
  }

  // Go on with the first continuations that are no ends; if these are too few, keep ended ones as idle.
  void go_on() {
    const int64_t beam = settings_->beam, wanted = 2 * beam;
    for (int64_t i = 0; i < beam; ++i) ends_[i] = ends_[i] || idle_[i];
    order_.clear();
    for (const bool ended : {false, true}) {
      for (int64_t i = 0; i < wanted && static_cast<int64_t>(order_.size()) < beam; ++i) {
        if (ends_[i] == ended) order_.push_back(i);
      }
    }
    next_places_.resize(places_.size());
    ++step_;
    count_ = beam;
    for (int64_t i = 0; i < beam; ++i) {
      const int64_t from = order_[i];
      idle_[i] = ends_[from];
      symbols_.push_back(chosen_[from]);
      sums_.push_back(values_[from]);
      int32_t* own = next_places_.data() + i * stride_;
      std::copy_n(places(parents_[from]), step_, own);
      own[step_] = static_cast<int32_t>(row(i));
    }
    places_.swap(next_places_);
  }

  const Settings* settings_ = nullptr;
  const int64_t* prefix_ = nullptr;
  double output_alpha_ = 1;
  int64_t prescribed_ = 0, step_ = 0, count_ = 0, stride_ = 0;
  std::vector<int64_t> symbols_;  // of each row
  std::vector<T> sums_;           // log-probability of each row's hypothesis
  std::vector<int32_t> places_, next_places_;
  Rules rules_;
  std::vector<Continuations<T>> continuations_;  // of each hypothesis
  std::vector<T> values_;                        // of the best continuations, like chosen_ and parents_
  std::vector<int64_t> chosen_, parents_, order_, repeated_, starts_;
  std::vector<bool> idle_, ends_;
};

}  // namespace decoding

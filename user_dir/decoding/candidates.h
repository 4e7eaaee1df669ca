// The best continuations of the hypotheses of each sentence.

#pragma once

#include <algorithm>
#include <vector>

#include "lanes.h"

namespace decoding {

using namespace entmax;

// Which symbols may come next in a sentence, and the penalty of the unknown symbol.
struct Rules {
  const int64_t* banned;  // does not concern `only`
  int64_t bans;
  int64_t only;             // the one symbol allowed, or −1
  const int64_t* repeated;  // symbols banned for single hypotheses, in the order of the hypotheses
  const int64_t* starts;    // for each hypothesis, where its part of `repeated` starts; then the end of the last part
  int64_t unknown;          // the symbol whose log-probability is lowered by penalty
  double penalty;

  // Set the scores of the banned symbols of hypothesis `row` to −∞; `values` has the scores of symbols begin … end − 1.
  template <typename T>
  void apply(int64_t row, int64_t begin, int64_t end, T* values) const {
    const auto ban = [&](int64_t symbol) {
      if (begin <= symbol && symbol < end) values[symbol - begin] = -std::numeric_limits<T>::infinity();
    };
    for (int64_t i = starts[row]; i < starts[row + 1]; ++i) ban(repeated[i]);
    for (int64_t i = 0; i < bans && only < 0; ++i) ban(banned[i]);
  }

  bool allows(int64_t row, int64_t symbol) const {
    if (std::count(repeated + starts[row], repeated + starts[row + 1], symbol) > 0) return false;
    return only >= 0 ? symbol == only : std::count(banned, banned + bans, symbol) == 0;
  }
};

template <typename T>
struct Ranking {
  T* scores;
  int64_t* symbols;
  int64_t* beams;
  int64_t wanted, count = 0;

  T worst() const { return count < wanted ? -std::numeric_limits<T>::infinity() : scores[wanted - 1]; }

  // Keeps scores in descending order, and equal scores in the order of their addition.
  void add(T score, int64_t symbol, int64_t beam) {
    int64_t at = count < wanted ? count++ : wanted - 1;
    for (; at > 0 && scores[at - 1] < score; --at) {
      scores[at] = scores[at - 1];
      symbols[at] = symbols[at - 1];
      beams[at] = beams[at - 1];
    }
    scores[at] = score;
    symbols[at] = symbol;
    beams[at] = beam;
  }
};

// The best continuations of one hypothesis, whose logits are read in parts.
template <typename T>
class Continuations {
 public:
  static constexpr int64_t block = 512;  // logits that stay in the first-level cache

  // `eps`: α − 1 of the output's α-entmax; 0 for softmax.
  void start(int64_t wanted, double eps) {
    eps_ = static_cast<T>(eps);
    best_.assign(wanted, {-infinity, 0});
    kept_.clear();
    top_ = -infinity;
    total_ = 0;
    broken_ = false;
  }

  // Read the logits of symbols begin … end − 1, and overwrite them. `begin` is a multiple of `block`, so that sums do
  // not depend on how many logits are read at a time.
  void read(T* logits, int64_t begin, int64_t end, int64_t row, const Rules& rules) {
    for (; begin < end; begin += block, logits += block) {
      read_block(logits, begin, std::min(begin + block, end), row, rules);
    }
  }

  // Add the continuations to the ranking of the sentence; `score` is that of the hypothesis.
  void finish(T score, int64_t beam, Ranking<T>& ranking) const {
    if (broken_ || !(std::abs(top_) < infinity)) return;  // as fairseq: nothing follows a NaN
    const T log_mass = std::log(total_);
    for (const Best& best : best_) {
      const T value = ((best.logit - top_) - log_mass) + score;
      if (!(value > ranking.worst())) return;
      ranking.add(value, best.symbol, beam);
    }
  }

  // finish() for an output with α-entmax.
  void finish_sparse(T score, int64_t beam, const Rules& rules, Ranking<T>& ranking) {
    if (broken_ || !(std::abs(top_) < infinity)) return;
    std::erase_if(kept_, [&](const Best& best) { return !(eps_ * (best.logit - top_) > -1); });
    const int64_t count = kept_.size();
    Lanes<T> solver(count, Stop::alone);  // all lanes compute the same row
    for (int64_t i = 0; i < count; ++i) solver.z[i] = kept_[i].logit - top_ + Vec<T>{};
    solver.solve(eps_ + Vec<T>{}, count);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t symbol = kept_[i].symbol;
      const T penalty = symbol == rules.unknown ? static_cast<T>(rules.penalty) : T(0);
      const T value = std::log(solver.p[i][0]) - penalty + score;
      if (value > ranking.worst() && rules.allows(beam, symbol)) ranking.add(value, symbol, beam);
    }
  }

 private:
  static constexpr int lanes = Simd<T>::lanes;
  static constexpr T infinity = std::numeric_limits<T>::infinity();
  struct Best {
    T logit;
    int64_t symbol;
  };

  void read_block(T* logits, int64_t begin, int64_t end, int64_t row, const Rules& rules) {
    const int64_t count = end - begin;
    Vec<T> greatest = -infinity + Vec<T>{}, total = {};
    IntVec<T> broken = {};
    for (int64_t i = 0; i < count; i += lanes) {
      const Vec<T> values = load(logits + i, count - i, -infinity);
      broken |= values != values;
      greatest = maximum(values, greatest);
    }
    T top = greatest[0];
    for (int lane = 1; lane < lanes; ++lane) top = std::max(top, greatest[lane]);
    broken_ |= any<T>(broken) || top == infinity;
    if (broken_ || top == -infinity) return;
    if (top > top_) {
      total_ *= std::exp(top_ - top);
      top_ = top;
    }
    if (eps_ > 0) return keep_possible(logits, begin, count);
    const Vec<T> shift = top_ + Vec<T>{}, least = Simd<T>::least_log2 + Vec<T>{};
    for (int64_t i = 0; i < count; i += lanes) {
      const Vec<T> power = (load(logits + i, count - i, -infinity) - shift) * static_cast<T>(M_LOG2E);
      total += exp2<T>(maximum(power, least));  // a logit of −∞ adds practically 0
    }
    total_ += sum<T>(total);
    if (begin <= rules.unknown && rules.unknown < end) logits[rules.unknown - begin] -= static_cast<T>(rules.penalty);
    rules.apply(row, begin, end, logits);
    if (const int64_t only = rules.only; only >= 0) {
      if (begin <= only && only < end) keep(logits[only - begin], only);
      return;
    }
    for (int64_t i = 0; i < count; i += lanes) {
      const Vec<T> values = load(logits + i, count - i, -infinity);
      uint32_t better = bits<T>(values > best_.back().logit);
      for (; better != 0; better &= better - 1) {
        const int64_t at = i + __builtin_ctz(better);
        keep(logits[at], begin + at);
      }
    }
  }

  // Keep all logits whose probability may be above 0, also of banned symbols: the other probabilities depend on them.
  void keep_possible(const T* logits, int64_t begin, int64_t count) {
    const T least = top_ - 1 / eps_;
    for (int64_t i = 0; i < count; i += lanes) {
      uint32_t possible = bits<T>(load(logits + i, count - i, -infinity) > least);
      for (; possible != 0; possible &= possible - 1) {
        const int64_t at = i + __builtin_ctz(possible);
        kept_.push_back({logits[at], begin + at});
      }
    }
  }

  // Insert a symbol if it is one of the best so far, after earlier ones with the same logit.
  void keep(T logit, int64_t symbol) {
    int64_t at = best_.size() - 1;
    if (!(logit > best_[at].logit)) return;
    for (; at > 0 && best_[at - 1].logit < logit; --at) best_[at] = best_[at - 1];
    best_[at] = {logit, symbol};
  }

  T eps_;
  std::vector<Best> best_;  // descending
  std::vector<Best> kept_;  // for a sparse output, instead of best_
  T top_, total_;           // the greatest logit, and the sum of exp(· − top)
  bool broken_;
};

}  // namespace decoding

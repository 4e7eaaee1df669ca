// The best continuations of the hypotheses of each sentence.

#pragma once

#include "../entmax/lanes.h"
#include "threads.h"

namespace decoding {

using namespace entmax;

// What may follow, and at which price.
struct Rules {
  const int64_t* banned;  // for all hypotheses; does not concern `only`
  int64_t bans;
  const int64_t* only;      // for each hypothesis, the one symbol allowed, or −1; null: all symbols
  const int64_t* repeated;  // symbols banned for single hypotheses, in their order; null: none
  const int64_t* starts;    // for each hypothesis, where its part of `repeated` starts, and for the last where it ends
  int64_t unknown;          // the symbol whose log-probability is lowered by penalty
  double penalty;
  bool sparse;  // rows are probabilities, many of them 0, instead of logits

  // Set the scores of all banned symbols of a hypothesis; returns the one symbol allowed, or −1.
  template <typename T>
  int64_t apply(int64_t row, T* values, T lowest) const {
    if (repeated != nullptr) {
      for (int64_t i = starts[row]; i < starts[row + 1]; ++i) values[repeated[i]] = lowest;
    }
    if (only != nullptr && only[row] >= 0) return only[row];
    for (int64_t i = 0; i < bans; ++i) values[banned[i]] = lowest;
    return -1;
  }
};

template <typename T>
struct Found {
  T* scores;
  int64_t* symbols;
  int64_t* beams;
  int64_t wanted, count = 0;

  T worst() const { return count < wanted ? -std::numeric_limits<T>::infinity() : scores[wanted - 1]; }

  // Keeps the order: descending, what was found first before its equals.
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

// Add the best continuations of one hypothesis. Changes its logits.
template <typename T>
void search_row(T* logits, int64_t symbols, T score, int64_t row, int64_t beam, const Rules& rules, Found<T>& found) {
  constexpr int lanes = Simd<T>::lanes;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  Vec<T> greatest = -infinity + Vec<T>{};
  IntVec<T> broken = {};
  for (int64_t i = 0; i < symbols; i += lanes) {
    const Vec<T> values = load(logits + i, symbols - i, -infinity);
    broken |= values != values;
    greatest = maximum(values, greatest);
  }
  T top = greatest[0];
  for (int lane = 1; lane < lanes; ++lane) top = std::max(top, greatest[lane]);
  if (any<T>(broken) || !(std::abs(top) < infinity)) return;  // as fairseq: nothing follows a NaN
  Vec<T> total = {};
  for (int64_t i = 0; i < symbols; i += lanes) {
    const Vec<T> power = (load(logits + i, symbols - i, -infinity) - top) * static_cast<T>(M_LOG2E);
    const Vec<T> value = exp2<T>(maximum(power, Simd<T>::least_log2 + Vec<T>{}));
    total += power < Simd<T>::least_log2 ? Vec<T>{} : value;
  }
  const T log_mass = std::log(sum<T>(total));
  logits[rules.unknown] -= static_cast<T>(rules.penalty);
  const int64_t only = rules.apply(row, logits, -infinity);
  if (only >= 0) {
    const T value = (logits[only] - top) - log_mass + score;
    if (value > found.worst()) found.add(value, only, beam);
    return;
  }
  for (int64_t i = 0; i < symbols; i += lanes) {
    const Vec<T> values = ((load(logits + i, symbols - i, -infinity) - top) - log_mass) + score;
    uint32_t better = bits<T>(values > found.worst());
    for (; better != 0; better &= better - 1) {
      const int lane = __builtin_ctz(better);
      if (values[lane] > found.worst()) found.add(values[lane], i + lane, beam);
    }
  }
}

// The same for probabilities instead of logits. Logarithms are only taken of those that may be chosen.
template <typename T>
void search_sparse_row(T* p, int64_t symbols, T score, int64_t row, int64_t beam, const Rules& rules,
                       Found<T>& found) {
  constexpr int lanes = Simd<T>::lanes;
  IntVec<T> broken = {};
  for (int64_t i = 0; i < symbols; i += lanes) {
    const Vec<T> values = load(p + i, symbols - i);
    broken |= values != values;
  }
  if (any<T>(broken)) return;
  const T penalty = static_cast<T>(rules.penalty);
  const auto consider = [&](int64_t symbol) {
    const T value = std::log(p[symbol]) - (symbol == rules.unknown ? penalty : T(0)) + score;
    if (value > found.worst()) found.add(value, symbol, beam);
  };
  const int64_t only = rules.apply(row, p, T(0));
  if (only >= 0) return consider(only);
  // No lower one is better than the worst found so far, with a margin for rounding.
  const T lowest = std::exp(found.worst() - score + std::min(penalty, T(0))) * static_cast<T>(0.999);
  for (int64_t i = 0; i < symbols; i += lanes) {
    uint32_t possible = bits<T>(load(p + i, symbols - i) > lowest);
    for (; possible != 0; possible &= possible - 1) consider(i + __builtin_ctz(possible));
  }
}

template <typename T>
void best(int64_t sentences, int64_t beams, int64_t symbols, int64_t wanted, T* logits, const T* scores,
          const Rules& rules, T* to_scores, int64_t* to_symbols, int64_t* to_beams) {
  share_out(sentences, 4.0 * beams * symbols / Simd<T>::lanes, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      Found<T> found{to_scores + s * wanted, to_symbols + s * wanted, to_beams + s * wanted, wanted};
      for (int64_t beam = 0; beam < beams; ++beam) {
        if (scores[s * beams + beam] == -std::numeric_limits<T>::infinity()) continue;
        const auto search = rules.sparse ? search_sparse_row<T> : search_row<T>;
        const int64_t row = s * beams + beam;
        search(logits + row * symbols, symbols, scores[row], row, beam, rules, found);
      }
    }
  });
}

}  // namespace decoding

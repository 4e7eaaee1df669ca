// Work shared out among threads.

#pragma once

#include <ATen/Parallel.h>

namespace decoding {

// Operations that are worth waking a thread for.
constexpr double grain = 1 << 15;

// Apply work(begin, end) to parts of 0 … items − 1, each item of which costs so many operations.
template <typename Work>
void share_out(int64_t items, double cost, const Work& work) {
  at::parallel_for(0, items, std::max<int64_t>(1, grain / cost), work);
}

}  // namespace decoding

// Work shared out among the threads of OpenMP, without PyTorch.

#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>

namespace decoding {

// Operations that are worth waking a thread for.
constexpr double grain = 1 << 15;

// The number of threads for new work: 1 inside of work that is already shared out.
inline int64_t most_threads() { return omp_in_parallel() ? 1 : omp_get_max_threads(); }

// Apply work(begin, end) to parts of 0 … items − 1, each of at least `least` items.
template <typename Work>
void share_out_parts(int64_t items, int64_t least, const Work& work) {
  if (items <= 0) return;
  const int64_t wanted = std::min(most_threads(), (items + least - 1) / least);
  if (wanted <= 1) return work(0, items);
  std::exception_ptr failure;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
#pragma omp parallel num_threads(wanted)
  {
    const int64_t threads = omp_get_num_threads(), part = (items + threads - 1) / threads;
    const int64_t begin = omp_get_thread_num() * part, end = std::min(begin + part, items);
    try {
      if (begin < end) work(begin, end);
    } catch (...) {  // exceptions must not leave the parallel region
      if (!failed.test_and_set()) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

// share_out_parts() for items that cost `cost` operations each.
template <typename Work>
void share_out(int64_t items, double cost, const Work& work) {
  share_out_parts(items, std::max<int64_t>(1, grain / std::max(cost, 1.0)), work);
}

}  // namespace decoding

// Breadth-first search of a GAP graph (.sg) that is mapped and not loaded: what the page cache makes of a graph larger than memory.
//
//     g++ -O3 -march=native -std=c++17 -fopenmp mapped_bfs.cpp -o mapped_bfs && mapped_bfs FILE.sg SOURCE
//
// Direction-optimizing (Beamer, Asanovic, Patterson, SC 2012; alpha 15, beta 18), as GAP's bfs is: parents and two bitmaps are in memory, index
// and neighbours in the mapping, advised as random. Undirected graphs only. Prints one line of JSON.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

// Numbers in the file are not aligned: its header has 17 bytes.
template <typename T> static T at(const char *array, int64_t index) {
  T value;
  std::memcpy(&value, array + index * sizeof(T), sizeof(T));
  return value;
}

int main(int argc, char **argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: mapped_bfs FILE.sg SOURCE\n"), 2;
  int file = open(argv[1], O_RDONLY);
  struct stat facts;
  if (file < 0 || fstat(file, &facts)) return std::perror(argv[1]), 1;
  auto bytes = static_cast<const char *>(mmap(nullptr, facts.st_size, PROT_READ, MAP_SHARED, file, 0));
  if (bytes == MAP_FAILED) return std::perror("mmap"), 1;
  madvise(const_cast<char *>(bytes), facts.st_size, MADV_RANDOM);
  const int64_t entries = at<int64_t>(bytes + 1, 0), n = at<int64_t>(bytes + 9, 0);
  const char *offsets = bytes + 17, *neighbours = offsets + 8 * (n + 1);
  const int32_t source = std::atoi(argv[2]);
  if (bytes[0] || source < 0 || source >= n) return std::fprintf(stderr, "directed, or no such vertex\n"), 1;

  auto begun = std::chrono::steady_clock::now();
  std::vector<int32_t> parents(n, -1), queue{source};
  std::vector<uint64_t> front((n + 63) / 64), next(front.size());
  parents[source] = source;
  int64_t reached = 1, levels = 1, scanned = 0, unexplored = entries, awake = 1, before = 0;
  bool bottom_up = false;
  while (awake) {
    int64_t scout = 0;
    if (!bottom_up) {
      for (int32_t v : queue) scout += at<int64_t>(offsets, v + 1) - at<int64_t>(offsets, v);
      if (scout > unexplored / 15) {
        std::fill(front.begin(), front.end(), 0);
        for (int32_t v : queue) front[v / 64] |= uint64_t(1) << (v % 64);
        bottom_up = true;
      }
      unexplored -= scout;
    } else if (awake < before && awake < n / 18) {
      queue.clear();
      for (int64_t v = 0; v < n; v++)
        if (front[v / 64] >> (v % 64) & 1) queue.push_back(v);
      bottom_up = false;
    }
    before = awake;
    awake = 0;
    if (bottom_up) {
      std::fill(next.begin(), next.end(), 0);
#pragma omp parallel for schedule(dynamic, 16) reduction(+ : awake, scanned)
      for (int64_t word = 0; word < (int64_t)front.size(); word++)
        for (int64_t v = word * 64; v < n && v < word * 64 + 64; v++) {
          if (parents[v] >= 0) continue;
          for (int64_t i = at<int64_t>(offsets, v), end = at<int64_t>(offsets, v + 1); i < end; i++) {
            int32_t u = at<int32_t>(neighbours, i);
            scanned++;
            if (front[u / 64] >> (u % 64) & 1) {
              parents[v] = u, next[word] |= uint64_t(1) << (v % 64), awake++;
              break;
            }
          }
        }
      std::swap(front, next);
    } else {
      std::vector<int32_t> found;
#pragma omp parallel reduction(+ : scanned)
      {
        std::vector<int32_t> own;
#pragma omp for schedule(dynamic, 64) nowait
        for (int64_t q = 0; q < (int64_t)queue.size(); q++)
          for (int64_t i = at<int64_t>(offsets, queue[q]), end = at<int64_t>(offsets, queue[q] + 1); i < end; i++) {
            int32_t u = at<int32_t>(neighbours, i), none = -1;
            scanned++;
            if (__atomic_load_n(&parents[u], __ATOMIC_RELAXED) < 0 &&
                __atomic_compare_exchange_n(&parents[u], &none, queue[q], false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
              own.push_back(u);
          }
#pragma omp critical
        found.insert(found.end(), own.begin(), own.end());
      }
      awake = found.size();
      queue.swap(found);
    }
    reached += awake;
    levels += awake > 0;
  }
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  std::printf("{\"seconds\": %.6f, \"reached\": %ld, \"levels\": %ld, \"scanned\": %ld}\n", seconds, (long)reached, (long)levels, (long)scanned);
}

// Sorts random 64-bit numbers by STXXL's sorter: `sort COUNT MEMORY`, bytes of memory; the disk is what STXXLCFG names.
// Prints one line of JSON: seconds from the first push to the last record, and whether the order was right.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include <stxxl/io>
#include <stxxl/sorter>
#include <stxxl/stats>

struct Less {
    bool operator()(const uint64_t& a, const uint64_t& b) const { return a < b; }
    uint64_t min_value() const { return 0; }
    uint64_t max_value() const { return std::numeric_limits<uint64_t>::max(); }
};

// The numbers of crates/external/examples/sorting.rs.
static uint64_t mixed(uint64_t index) {
    uint64_t z = index * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "sort COUNT MEMORY\n");
        return 2;
    }
    const uint64_t count = std::strtoull(argv[1], nullptr, 10);
    const uint64_t memory = std::strtoull(argv[2], nullptr, 10);
    stxxl::stats_data before(*stxxl::stats::get_instance());
    const auto start = std::chrono::steady_clock::now();
    stxxl::sorter<uint64_t, Less, 1 << 20> sorter(Less(), memory);
    // Neither 0 nor the greatest number, which STXXL keeps for itself.
    for (uint64_t i = 1; i <= count; ++i) sorter.push(mixed(i));
    sorter.sort();
    uint64_t last = 0, sum = 0, seen = 0;
    bool is_sorted = true;
    for (; !sorter.empty(); ++sorter, ++seen) {
        is_sorted &= last <= *sorter;
        last = *sorter;
        sum += last;
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    stxxl::stats_data used = stxxl::stats_data(*stxxl::stats::get_instance()) - before;
    std::printf("{\"seconds\": %.4f, \"is_sorted\": %s, \"sum\": %llu, \"bytes_read\": %llu, \"bytes_written\": %llu}\n", seconds,
                is_sorted && seen == count ? "true" : "false", (unsigned long long)sum,
                (unsigned long long)used.get_read_volume(), (unsigned long long)used.get_written_volume());
    return is_sorted && seen == count ? 0 : 1;
}

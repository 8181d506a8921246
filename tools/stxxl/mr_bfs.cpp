// Breadth-first search by sorting (Munagala and Ranade) on STXXL: `mr_bfs GRAPH.sg SOURCE MEMORY`, an undirected graph in GAP's
// serialized format; the disk is what STXXLCFG names. The graph is copied to STXXL vectors first, which is not timed.
// Prints one line of JSON: seconds of the search, levels, vertices reached, sum of levels, bytes moved by the search.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <vector>

#include <stxxl/io>
#include <stxxl/sorter>
#include <stxxl/stats>
#include <stxxl/vector>

struct Less {
    bool operator()(const uint64_t& a, const uint64_t& b) const { return a < b; }
    uint64_t min_value() const { return 0; }
    uint64_t max_value() const { return std::numeric_limits<uint64_t>::max(); }
};

static const unsigned BLOCK = 128 << 10;
using Sorter = stxxl::sorter<uint64_t, Less, BLOCK>;
// Two blocks a page, eight pages cached; lists of a dense level are read in ascending order.
using Offsets = stxxl::VECTOR_GENERATOR<uint64_t, 1, 8, 4096>::result;
using Targets = stxxl::VECTOR_GENERATOR<uint32_t, 2, 8, BLOCK>::result;
using Level = stxxl::VECTOR_GENERATOR<uint32_t, 1, 2, BLOCK>::result;
using LevelReader = Level::bufreader_type;

static void need(bool holds, const char* what) {
    if (!holds) {
        std::fprintf(stderr, "%s\n", what);
        std::exit(1);
    }
}

template <class T, class Vector>
static void copy(std::FILE* file, uint64_t count, Vector& to) {
    to.resize(count);
    typename Vector::bufwriter_type writer(to.begin());
    std::vector<T> buffer(1 << 16);
    for (uint64_t done = 0; done < count;) {
        const size_t now = std::min<uint64_t>(buffer.size(), count - done);
        need(std::fread(buffer.data(), sizeof(T), now, file) == now, "the graph is truncated");
        for (size_t i = 0; i < now; ++i) writer << buffer[i];
        done += now;
    }
    writer.finish();
}

// Vertices that are not to be taken, asked in ascending order.
class Subtracted {
public:
    explicit Subtracted(const Level& level) : reader(level) {}
    bool holds(uint32_t vertex) {
        while (!reader.empty() && *reader < vertex) ++reader;
        return !reader.empty() && *reader == vertex;
    }

private:
    LevelReader reader;
};

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "mr_bfs GRAPH.sg SOURCE MEMORY\n");
        return 2;
    }
    std::FILE* file = std::fopen(argv[1], "rb");
    need(file, "no such graph");
    const uint32_t source = std::strtoul(argv[2], nullptr, 10);
    const uint64_t memory = std::strtoull(argv[3], nullptr, 10);
    char directed;
    int64_t edges, nodes;
    need(std::fread(&directed, 1, 1, file) == 1 && std::fread(&edges, 8, 1, file) == 1 &&
             std::fread(&nodes, 8, 1, file) == 1 && !directed,
         "not an undirected graph in GAP's format");
    Offsets offsets;
    Targets targets;
    copy<uint64_t>(file, nodes + 1, offsets);
    copy<uint32_t>(file, offsets[nodes], targets);
    std::fclose(file);
    const Offsets& starts = offsets;
    const Targets& lists = targets;

    stxxl::stats_data before(*stxxl::stats::get_instance());
    const auto start = std::chrono::steady_clock::now();
    auto last = std::make_unique<Level>(), before_last = std::make_unique<Level>();
    last->push_back(source);
    uint64_t level = 0, reached = 1, sum_of_levels = 0, scanned = 0;
    // What the caches and buffers of the vectors leave.
    const uint64_t for_sorting = memory - 12 * 2 * BLOCK;
    while (!last->empty()) {
        ++level;
        Sorter sorter(Less(), for_sorting);
        for (LevelReader vertices(*last); !vertices.empty(); ++vertices) {
            const uint64_t vertex = *vertices, end = starts[vertex + 1];
            scanned += end - starts[vertex];
            for (uint64_t i = starts[vertex]; i < end; ++i) sorter.push(uint64_t(lists[i]) << 32 | vertex);
        }
        auto next = std::make_unique<Level>();
        if (sorter.size() > 0) {
            sorter.sort();
            Subtracted one(*last), two(*before_last);
            int64_t taken = -1;
            for (; !sorter.empty(); ++sorter) {
                const uint32_t vertex = *sorter >> 32;
                if (vertex == taken) continue;
                taken = vertex;
                if (one.holds(vertex) || two.holds(vertex)) continue;
                next->push_back(vertex);
            }
        }
        reached += next->size();
        sum_of_levels += level * next->size();
        before_last = std::move(last);
        last = std::move(next);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    stxxl::stats_data used = stxxl::stats_data(*stxxl::stats::get_instance()) - before;
    std::printf("{\"seconds\": %.4f, \"levels\": %llu, \"reached\": %llu, \"sum_of_levels\": %llu, \"entries\": %llu, "
                "\"bytes_read\": %llu, \"bytes_written\": %llu}\n",
                seconds, (unsigned long long)level, (unsigned long long)reached, (unsigned long long)sum_of_levels,
                (unsigned long long)scanned, (unsigned long long)used.get_read_volume(),
                (unsigned long long)used.get_written_volume());
}

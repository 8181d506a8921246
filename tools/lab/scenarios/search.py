"""`sweep --search screen` on throttled drives recommends what the exhaustive sweep of the same space has among its best.

The truth is set: a drive gives so many requests a second, so that four drives with enough requests in flight are
the best, with either scheduler.
"""

# qemu lets a tenth of a second's requests through at once before it throttles: 15 of a drive. Four in flight use that up before a run
# is measured, on an emulator that makes 900 requests a second or more with them; one that makes less than 600 is never throttled.
IOPS = 150
SPACE = "/payload/spaces/search.toml"
NEAR = 0.98  # of the best figure
PASSES = 3


def run(lab):
    lab.guest.limit(iops=IOPS)
    before = lab.footprint(interrupts=False)
    everything = sweep(lab, "all", "exhaustive", "--passes", PASSES)
    screened = sweep(lab, "screened", "screen")
    lab.unchanged("both leave the drives and their queues as they were", before, interrupts=False)

    figures = {settings(point): point for point in everything["points"]}
    best = max(figures.values(), key=mean)
    lab.check("the best of all is four drives at what they are throttled to",
              best["settings"]["width"] == "4" and 0.85 * 4 * IOPS <= mean(best) <= 1.15 * 4 * IOPS,
              f"{mean(best):.0f} of {4 * IOPS} IOPS with {best['settings']}")
    built = {point["settings"]["width"] for point in screened["points"] if runs(point)}
    lab.check("the screened sweep leaves a construction out, and builds the best one", len(built) < 4 and "4" in built, f"widths {sorted(built)}")
    blocks = [contest["last_screened"] for contest in screened["search"]["contests"]]
    lab.check("what it builds is screened", bool(blocks) and all(blocks), f"in {blocks} blocks")
    ran = sum(1 for point in screened["points"] if runs(point))
    lab.check("at most three quarters of the points run in it", 4 * ran <= 3 * len(figures), f"{ran} of {len(figures)}")
    one = [point for point in figures.values() if point["settings"]["width"] == "1"]
    lab.check("a drive alone is told from the best", not any(is_as_good(point, best) for point in one), f"{max(map(mean, one)):.0f} IOPS")
    chosen = [recommendation["point"] for recommendation in screened["recommendations"]]
    lab.require("one setting is recommended", len(chosen) == 1 and chosen[0] is not None, str(screened["recommendations"])[:300])
    point = next(point for point in screened["points"] if point["point"] == chosen[0])
    own = figures[settings(point)]
    lab.check("the screened sweep's answer is within 2 % of the exhaustive one's best, or not told from it", is_as_good(own, best),
              f"{mean(own):.0f} against {mean(best):.0f} IOPS, with {own['settings']}")


def sweep(lab, name, search, *flags):
    """The report of a sweep of the space."""
    answer = lab.flashwright("sweep", "run", SPACE, "--search", search, *flags, "--output", f"/state/search-{name}", "--json", timeout=900)
    lab.must(answer)
    return answer.json


def settings(point):
    return tuple(sorted(point["settings"].items()))


def runs(point):
    return sum(point["runs"].values())


def mean(point):
    return point["iops"]["mean"]


def is_as_good(point, best):
    """Within 2 %, or with a 95 % interval that reaches the best one's."""
    overlap = point["iops"]["interval"]["high"] >= best["iops"]["interval"]["low"]
    return mean(point) >= NEAR * mean(best) or overlap

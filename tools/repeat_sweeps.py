#!/usr/bin/env python3
"""Whether sweeps of this machine agree with each other: two experiments that only a real machine can answer.

    python3 tools/repeat_sweeps.py runs [--rounds 10] [--budget 2m] [--binary FILE] [--target SPEC] [--directory DIR]
    python3 tools/repeat_sweeps.py alike [--rounds 20] [--budget 1m] ...

`runs` makes the sweep of `make run` several times and compares what the runs conclude of each work. Expected: three of the four works
decided in each run, and at most one run that contradicts others. Two runs contradict each other in a work if

- no setting may be the best in both: what one calls better, equivalent or undecided has no setting in common with the other's; or
- one calls a setting better than all others by more than the margin of equivalence, and the other calls it equivalent to one of these; or
- both choose by the 99th percentile of latency among settings that both call equivalent, and choose differently.

Of runs that contradict each other, the fewest are counted without which none do.

`alike` lets a side alternate with itself (`sweep ab A.toml A.toml`), a work after the other, and counts how often the sides are called
different. Expected: at most one of twenty.

The scratch file is laid in --directory, by default the current one, and removed. The tables go to standard output, each document to
DIR/repeat-sweeps-*.json. Exit code 1 where the expectation does not hold, 2 where a sweep fails.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile

DECIDED = ("better", "equivalent", "sufficient")
# The works of `make run`, one after the other: rw, bs, iodepth.
WORKS = [("randread", "4k", 128), ("read", "4m", 4), ("randwrite", "4k", 128), ("write", "4m", 4)]


def document(binary, words, directory):
    """The report of a sweep, with its results in a directory that is removed."""
    with tempfile.TemporaryDirectory(prefix="repeat-sweeps-", dir=directory) as kept:
        words = [binary, "sweep", *words, "--json", "--output", os.path.join(kept, "results")]
        done = subprocess.run(words, cwd=directory, stdout=subprocess.PIPE, text=True, check=False)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}, and no report")


def works(report):
    """What a run concludes, by work; settings as they are written, because two runs may number them differently."""
    names = {p["point"]: json.dumps(p["settings"], sort_keys=True) for p in report["points"]}
    equivalence = report["meta"].get("equivalence", 0.05)
    found = {}
    for r in report["recommendations"]:
        tail = r.get("tail") or {}
        gain = r.get("over_runner_up") or {}
        found[json.dumps(r["work"], sort_keys=True)] = {
            "outcome": r["outcome"],
            "sentence": r["sentence"],
            "may_be_best": {names[p] for p in r["tied"]},
            "gain_low": (gain.get("interval") or {}).get("low", 1.0),
            "margin": 1.0 + (equivalence if isinstance(equivalence, float) else 0.05),
            "by_latency": names.get(r["point"]) if tail.get("outcome") == "better" else None,
        }
    return found


def contradicts(one, other):
    """Why two conclusions of a work cannot both be right; None if they can."""
    if not one["may_be_best"] or not other["may_be_best"]:
        return None
    common = one["may_be_best"] & other["may_be_best"]
    if not common:
        return "no setting may be the best in both"
    for a, b in ((one, other), (other, one)):
        is_better = a["outcome"] == "better" and a["gain_low"] > a["margin"]
        if is_better and b["outcome"] == "equivalent" and len(b["may_be_best"]) > 1:
            return "better by more than the margin, and equivalent"
    chosen = {one["by_latency"], other["by_latency"]}
    if one["outcome"] == other["outcome"] == "equivalent" and None not in chosen and len(chosen) == 2 and chosen <= common:
        return "the 99th percentile chooses differently"
    return None


def fewest(runs, pairs):
    """The least number of runs without which no pair of `pairs` is left."""
    for n in range(runs + 1):
        for left_out in itertools.combinations(range(runs), n):
            if all(a in left_out or b in left_out for a, b in pairs):
                return n
    return runs


def save(args, reports):
    path = os.path.join(args.directory, f"repeat-sweeps-{args.experiment}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(reports, file)
    print(f"\nThe reports: {path}")


def runs(args):
    """Several sweeps like `make run`, compared."""
    reports, concluded = [], []
    print("| run | decided | conclusions |\n|---|---|---|", flush=True)
    for number in range(args.rounds):
        target = ["--target", args.target] if args.target else []
        budget = ["--budget", args.budget] if args.budget else []
        reports.append(document(args.binary, [*target, *budget], args.directory))
        concluded.append(works(reports[-1]))
        found = concluded[-1].values()
        decided = sum(work["outcome"] in DECIDED for work in found)
        words = ", ".join(f"{json.loads(name)['class']['direction']}s: {work['outcome']}" for name, work in concluded[-1].items())
        print(f"| {number + 1} | {decided} of {len(found)} | {words} |", flush=True)
    pairs = set()
    for a, b in itertools.combinations(range(args.rounds), 2):
        for name in concluded[a].keys() & concluded[b].keys():
            why = contradicts(concluded[a][name], concluded[b][name])
            if why:
                pairs.add((a, b))
                print(f"\nRuns {a + 1} and {b + 1}: {why}.\n  {concluded[a][name]['sentence']}\n  {concluded[b][name]['sentence']}")
    enough = sum(sum(w["outcome"] in DECIDED for w in run.values()) * 4 >= 3 * len(run) for run in concluded)
    outliers = fewest(args.rounds, pairs)
    print(f"\nThree of four works decided in {enough} of {args.rounds} runs; {outliers} of {args.rounds} contradict others.")
    save(args, reports)
    return enough == args.rounds and outliers <= 1


def alike(args):
    """A side against itself, several times."""
    reports, differing = [], 0
    print("| comparison | work | verdict | B by A | blocks |\n|---|---|---|---|---|", flush=True)
    for number in range(args.rounds):
        rw, bs, iodepth = WORKS[number % len(WORKS)]
        with tempfile.NamedTemporaryFile("w", suffix=".toml", dir=args.directory) as space:
            space.write(f'[base]\nrw = "{rw}"\nbs = "{bs}"\niodepth = {iodepth}\n')
            space.flush()
            target = ["--target", args.target] if args.target else []
            words = ["ab", space.name, space.name, *target, "--budget", args.budget or "1m"]
            report = document(args.binary, words, args.directory)
        reports.append(report)
        (contest,) = report["contests"]
        race = contest["bandwidth"]
        verdict = race["answer"]["answer"]
        differing += verdict == "better"
        side = {p["point"]: p["settings"]["side"] for p in report["points"]}
        ratio = {side[contest["points"][s["setting"]]]: s["of_best"] for s in race["settings"]}
        known = all(ratio.values()) and len(ratio) == 2
        by = f"{ratio[max(ratio)]['ratio'] / ratio[min(ratio)]['ratio']:.3f}×" if known else "–"
        print(f"| {number + 1} | {rw} {bs}, depth {iodepth} | {verdict} | {by} | {race['blocks']} |", flush=True)
    print(f"\nOf {args.rounds} comparisons of a side with itself {differing} differ.")
    save(args, reports)
    return differing * 20 <= max(args.rounds, 20)


def main():
    """What is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=("runs", "alike"))
    parser.add_argument("--rounds", type=int, help="sweeps, or comparisons (10; 20)")
    parser.add_argument("--budget", help="the longest that each measures (2m as `make run`; 1m)")
    parser.add_argument("--binary", default="flashwright", help="the program (flashwright of PATH)")
    parser.add_argument("--target", help="what to measure (a scratch file)")
    parser.add_argument("--directory", default=".", help="where scratch files and results go (.)")
    args = parser.parse_args()
    args.rounds = args.rounds or {"runs": 10, "alike": 20}[args.experiment]
    args.directory = os.path.abspath(args.directory)
    if os.sep in args.binary:
        args.binary = os.path.abspath(args.binary)
    holds = {"runs": runs, "alike": alike}[args.experiment](args)
    print("As expected." if holds else "NOT as expected.")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

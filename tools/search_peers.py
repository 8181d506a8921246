#!/usr/bin/env python3
"""Tries optuna and smac, as they come from PyPI, on the space and the budget of `flashwright sweep check-search`.

    pip install optuna smac
    python3 tools/search_peers.py RESULTS.json [--seeds N] [--seed N] [--scatter SD] [--peers optuna,smac]

RESULTS.json is the report of a sweep over all points (`sweep --search exhaustive`, real or simulated); its means are taken for the
truth. Each figure gets independent normal noise, as in the world `normal`. A peer has a run for every four points, shared
equally by the works, and each work is a search of its own. It may build what it asks for (row "any construction"), or a tenth of the constructions, three
at least: then a suggestion on another one fails, and costs no run. What is missing here is left out, with a message.
"""

import argparse
import importlib.util
import json
import logging
import math
import random
import tempfile

CONSTRUCTION = ("layout", "chunk", "width", "filesystem", "mount_options", "drives")
NEAR = 0.98


class Truth:
    """Points by work, with the dimensions of each."""

    def __init__(self, path):
        with open(path) as file:
            points = json.load(file)["points"]
        self.works = {}
        for point in points:
            key = json.dumps(point["work"], sort_keys=True)
            figure = point["bandwidth"]["mean"]
            self.works.setdefault(key, {})[tuple(sorted(point["settings"].items()))] = figure
        self.runs = len(points) // 4 // len(self.works)
        self.constructions = len({built(settings) for of_work in self.works.values() for settings in of_work})
        self.builds = min(self.constructions, max(3, self.constructions // 10))
        self.points = len(points)


def built(settings):
    """What is built for a point."""
    return tuple((name, value) for name, value in settings if name in CONSTRUCTION)


class Search:
    """The runs of one search of a work, and the constructions that all searches of a seed have built."""

    def __init__(self, figures, limit, built_so_far, scatter, seed):
        self.figures, self.limit, self.built, self.scatter = figures, limit, built_so_far, scatter
        self.random, self.runs, self.best = random.Random(seed), 0, None
        names = {name for settings in figures for name, _ in settings}
        of = lambda name: sorted({value for settings in figures for key, value in settings if key == name})
        self.dimensions = {name: of(name) for name in sorted(names) if len(of(name)) > 1}
        self.fixed = {name: of(name)[0] for name in names if len(of(name)) == 1}

    def run(self, chosen):
        """ln of the figure of a point; None where it cannot be had."""
        settings = tuple(sorted({**self.fixed, **chosen}.items()))
        if settings not in self.figures:
            return None
        if built(settings) not in self.built and len(self.built) >= self.limit:
            return None
        self.built.add(built(settings))
        self.runs += 1
        figure = math.log(self.figures[settings]) + self.random.gauss(0, self.scatter)
        if self.best is None or figure > self.best[0]:
            self.best = (figure, settings)
        return figure

    def share(self):
        """The truth of the best point that was found, by the best there is."""
        return self.figures[self.best[1]] / max(self.figures.values()) if self.best else 0.0


def with_optuna(search, runs, seed):
    """optuna's default sampler (TPE)."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    for _ in range(20 * runs):
        if search.runs == runs:
            break
        trial = study.ask()
        figure = search.run({name: trial.suggest_categorical(name, values) for name, values in search.dimensions.items()})
        if figure is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, figure)


def with_smac(search, runs, seed):
    """smac's facade for hyperparameters (a random forest)."""
    from ConfigSpace import Categorical, ConfigurationSpace
    from smac import HyperparameterOptimizationFacade, Scenario
    from smac.runhistory import TrialInfo, TrialValue
    from smac.runhistory.enumerations import StatusType

    logging.getLogger("smac").setLevel(logging.ERROR)
    space = ConfigurationSpace(seed=seed)
    space.add([Categorical(name, values) for name, values in search.dimensions.items()])
    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(space, n_trials=20 * runs, seed=seed, deterministic=True, output_directory=folder)
        smac = HyperparameterOptimizationFacade(scenario, lambda config, seed=0: 0.0, logging_level=False, overwrite=True)
        for _ in range(20 * runs):
            if search.runs == runs:
                break
            info = smac.ask()
            if not isinstance(info, TrialInfo):
                break
            figure = search.run(dict(info.config))
            failed = TrialValue(cost=1e3, status=StatusType.CRASHED)
            smac.tell(info, failed if figure is None else TrialValue(cost=-figure))


PEERS = {"optuna": with_optuna, "smac": with_smac}


def row(name, peer, truth, limit, asked):
    """One line of the table."""
    near, builds, least, runs, sums = 0, 0, 1.0, 0, [0.0] * len(truth.works)
    for seed in range(asked.seed, asked.seed + asked.seeds):
        constructions, made, shares = set(), 0, []
        for number, figures in enumerate(truth.works.values()):
            search = Search(figures, limit, constructions, asked.scatter, seed * 1000 + number)
            peer(search, truth.runs, seed)
            made += search.runs
            shares.append(search.share())
        sums = [total + share for total, share in zip(sums, shares)]
        near += min(shares) >= NEAR
        builds, runs, least = max(builds, len(constructions)), max(runs, made), min(least, *shares)
    means = " ".join(f"{total / asked.seeds:.3f} |" for total in sums)
    print(
        f"| {name} | {100 * runs / truth.points / 5:.1f} % | {100 * builds / truth.constructions:.1f} % "
        f"| {100 * near / asked.seeds:.0f} % | {means} {least:.3f} |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scatter", type=float, default=0.05, help="SD of ln figures")
    parser.add_argument("--peers", default=",".join(PEERS))
    asked = parser.parse_args()
    truth = Truth(asked.results)
    works = " | ".join(f"{json.loads(key)['class']['access']} {json.loads(key)['class']['direction']}" for key in truth.works)
    print(f"{truth.points} points on {truth.constructions} constructions; {asked.seeds} seeds, noise of {asked.scatter:.0%}.\n")
    print(f"| method | runs | constructions | all within 2 % | {works} | least |")
    print("|---|---|---|---|" + "---|" * (len(truth.works) + 1))
    for name in asked.peers.split(","):
        if importlib.util.find_spec(name) is None:
            print(f"(left out: {name} is not installed)")
            continue
        row(f"{name}, any construction", PEERS[name], truth, truth.constructions, asked)
        row(f"{name}, {truth.builds} constructions", PEERS[name], truth, truth.builds, asked)


if __name__ == "__main__":
    main()

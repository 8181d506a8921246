"""The flash model beside MQSim: the same drive and loads in both, IOPS, mean response and speed.

MQSim is not part of this project: build it elsewhere (https://github.com/CMU-SAFARI/MQSim) and name its directory. Its own
`ssdconfig.xml` and `workload.xml` are read there and changed in a temporary directory. docs/sim-validation.md explains the
tables that this prints, and which defect of MQSim must be mended before its garbage collection can be compared.

    python3 tools/mqsim --mqsim DIR [--collecting DIR] [--depths 1,8,64] [--only reads|writes|collecting]
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MACHINE = ROOT / "machines" / "mqsim-default.toml"
# Requests of a run whose CPU time is taken for that of starting.
START_REQUESTS = 1000


class Stopped(Exception):
    """A program ended with an error."""


def cpu_seconds(command, directory):
    """Runs `command` and returns its output and the CPU time that it took, seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        said = re.search(r"ERROR:[^\n]*", done.stdout + done.stderr)
        raise Stopped(said.group(0) if said else f"exit {done.returncode}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def with_values(text, values):
    """An XML text with other values of some elements, each of which it has."""
    for name, value in values.items():
        text, found = re.subn(rf"<{name}>.*?</{name}>", f"<{name}>{value}</{name}>", text)
        if not found:
            sys.exit(f"MQSim's files have no {name}")
    return text


class Theirs:
    """MQSim in a directory."""

    def __init__(self, directory, scratch):
        self.program = directory.resolve() / "MQSim"
        if not self.program.is_file():
            sys.exit(f"--mqsim={directory}: has no program MQSim; build it there")
        self.config = (directory / "ssdconfig.xml").read_text()
        flows = re.search(r"<IO_Flow_Parameter_Set_Synthetic>.*?</IO_Flow_Parameter_Set_Synthetic>",
                          (directory / "workload.xml").read_text(), re.DOTALL)
        self.flow, self.scratch = flows.group(0), scratch

    def run(self, config, flow, depth, requests):
        """Mean response in microseconds, the log of responses over time, and CPU seconds."""
        flow = {**flow, "Average_No_of_Reqs_in_Queue": depth, "Stop_Time": 0, "Total_Requests_To_Generate": requests}
        (self.scratch / "config.xml").write_text(with_values(self.config, config))
        (self.scratch / "load.xml").write_text(
            '<?xml version="1.0" encoding="us-ascii"?>\n<MQSim_IO_Scenarios><IO_Scenario>'
            f"{with_values(self.flow, flow)}</IO_Scenario></MQSim_IO_Scenarios>\n")
        _, seconds = cpu_seconds([self.program, "-i", "config.xml", "-w", "load.xml"], self.scratch)
        report = (self.scratch / "load_scenario_1.xml").read_text()
        mean_us = float(re.search(r"<Device_Response_Time>([\d.]+)<", report).group(1))
        logs = list(self.scratch.glob("load.IO_Flow*.log"))
        log = [tuple(map(float, line.split()[:2])) for line in logs[0].read_text().splitlines()[1:]] if logs else []
        return mean_us, log, seconds


def settled_us(log):
    """Mean response of the last third of the time: windows of equal length, so those with more requests weigh more."""
    end = log[-1][0]
    late = [response for at, response in log if at > end * 2 / 3 and response > 0]
    return len(late) / sum(1 / response for response in late)


def ours(program, keys):
    """What the drive alone says."""
    text, _ = cpu_seconds([program, MACHINE, *(f"{key}={value}" for key, value in keys.items())], ROOT)
    return json.loads(text)


def cases():
    """Loads by name: MQSim's drive and flow and ours, requests of each, whether the end of a log counts."""
    aligned = {"Address_Alignment_Unit": 16, "Working_Set_Percentage": 100}
    fresh = {"align": 8192, "bs": 4096, "ramp": 1000}
    small = {"Block_No_Per_Plane": 64, "Page_No_Per_Block": 64, "Ideal_Mapping_Table": "true",
             "Enable_ResponseTime_Logging": "true", "ResponseTime_Logging_Period_Length": 100_000_000}
    half = {"Address_Alignment_Unit": 16, "Average_Request_Size": 16, "Working_Set_Percentage": 50, "Read_Percentage": 0}
    return {
        "reads": ("Random reads of 4 KiB, the default drive", {}, {**aligned, "Read_Percentage": 100}, 200_000,
                  {**fresh, "reads": 1, "state": "full", "commands": 200_000}, False),
        "writes": ("Random writes of 4 KiB, the default drive, fresh", {}, {**aligned, "Read_Percentage": 0}, 200_000,
                   {**fresh, "reads": 0, "state": "empty", "commands": 200_000}, False),
        "collecting": ("Random writes of 8 KiB in the steady state of garbage collection, 64 blocks of 64 pages a plane, half of the "
                       "drive in use, the map in memory", small, half, 1_600_000,
                       {"blocks_per_plane": 64, "pages_per_block": 64, "mapping_cache_entries": 0, "gc_sample_blocks": 6,
                        "align": 8192, "bs": 8192, "share": 0.5, "occupied": 0.5, "reads": 0, "state": "steady",
                        "ramp": 200_000, "commands": 400_000}, True),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mqsim", type=Path, required=True, metavar="DIR", help="where MQSim was built")
    parser.add_argument("--collecting", type=Path, metavar="DIR", help="a mended one for garbage collection")
    parser.add_argument("--depths", default="1,2,4,8,16,32,64")
    parser.add_argument("--only", choices=list(cases()))
    parser.add_argument("--program", type=Path, help="the built example drive_alone, instead of building it")
    arguments = parser.parse_args()
    program = arguments.program
    if program is None:
        subprocess.run(["cargo", "build", "--release", "-p", "flashwright-sim", "--example", "drive_alone"], cwd=ROOT, check=True)
        target = json.loads(subprocess.run(["cargo", "metadata", "--format-version=1", "--no-deps"], cwd=ROOT, check=True,
                                           capture_output=True, text=True).stdout)["target_directory"]
        program = Path(target) / "release" / "examples" / "drive_alone"
    with tempfile.TemporaryDirectory() as scratch:
        for name, case in cases().items():
            if arguments.only in (None, name):
                directory = arguments.collecting if name == "collecting" and arguments.collecting else arguments.mqsim
                table(Theirs(directory, Path(scratch)), program.resolve(), [int(d) for d in arguments.depths.split(",")], case)


def table(theirs, program, depths, case):
    """Prints the table of a case, with a line for each depth."""
    title, config, flow, requests, keys, settled = case
    print(f"\n{title}\n\n| depth | MQSim IOPS | ours | ratio | MQSim mean | ours | ratio | MQSim a CPU second | ours | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    their_start = min(theirs.run(config, flow, depths[0], START_REQUESTS)[2] for _ in range(3))
    for depth in depths:
        try:
            mean_us, log, their_seconds = theirs.run(config, flow, depth, requests)
        except Stopped as stopped:
            print(f"| {depth} | stopped: {stopped} | | | | | | | | |", flush=True)
            continue
        mean_us = settled_us(log) if settled else mean_us
        # A closed loop: requests in flight are rate times response. MQSim's own rate is of whole seconds.
        iops = depth * 1e6 / mean_us
        found = ours(program, {**keys, "depth": depth})
        their_speed = requests / max(their_seconds - their_start, 0.01)
        our_speed = found["commands_per_cpu_second"]
        print(f"| {depth} | {iops:,.0f} | {found['iops']:,.0f} | {found['iops'] / iops:.3f} "
              f"| {mean_us:,.0f} µs | {found['mean_us']:,.0f} µs | {found['mean_us'] / mean_us:.3f} "
              f"| {their_speed:,.0f} | {our_speed:,.0f} | {our_speed / their_speed:.0f} |", flush=True)


main()

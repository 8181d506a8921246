"""One host's memory beside that of three as one drive, over links of equal rate.

Network namespaces stand for hosts, each at the end of a cable of its own whose two ends pass the same rate (tc's token bucket,
tbf): so a link is what one host is limited by, as on a real network. Each serves its memory; what is compared is `nbd://` of
one host and `stripe()` of all, in interleaved rounds, at the same depth for each host.

Needs root, ip(8) and tc(8); where these are missing that is said, and nothing is measured. What it makes it removes.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

import common

TAG = f"fr{os.getpid() % 100000}"
NET = f"10.{150 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
SIZE = 256 << 20
PORT = 10809
# Of each host: what keeps a link busy while replies are on their way.
LOADS = [("sequential reads of 1 MiB", "read", "1m", 4), ("sequential writes of 1 MiB", "write", "1m", 4),
         ("random reads of 4 KiB", "randread", "4k", 64), ("random writes of 4 KiB", "randwrite", "4k", 64)]


def ip(*words):
    subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def shape(rate, device, within=()):
    subprocess.run([*within, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "256k", "latency", "50ms"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def hosts(stack, count, rate):
    """Namespaces at the ends of cables of that rate; their names and addresses."""
    for number in range(1, count + 1):
        name, here, there = f"{TAG}n{number}", f"{TAG}h{number}", f"{TAG}g{number}"
        ip("netns", "add", name)
        stack.callback(subprocess.run, ["ip", "netns", "del", name], check=False)
        ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
        ip("address", "add", f"{NET}.{number * 4 + 1}/30", "dev", here)
        ip("link", "set", here, "up")
        ip("-n", name, "address", "add", f"{NET}.{number * 4 + 2}/30", "dev", there)
        ip("-n", name, "link", "set", there, "up")
        shape(rate, here)
        shape(rate, there, ("ip", "netns", "exec", name))
        yield name, f"{NET}.{number * 4 + 2}"


def end(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def serve(stack, name, address):
    process = subprocess.Popen(["ip", "netns", "exec", name, common.OURS, "memory", "serve", "--size", str(SIZE), "--listen",
                                f"{address}:{PORT}", "--insecure"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(end, process)
    until = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection((address, PORT), 1).close()
        except OSError:
            if time.monotonic() > until or process.poll() is not None:
                sys.exit(f"the server of {address} does not listen")
            time.sleep(0.05)


def rate_of(spec, rw, bs, depth, seconds):
    text, _, _ = common.execute([common.OURS, "bench", f"--rw={rw}", f"--bs={bs}", f"--iodepth={depth}", "--norandommap=1",
                                 f"--runtime={seconds}s", "--ramp_time=1s", "--target", spec, "--destroy", spec, "--json"])
    return json.loads(text)["bandwidth_bytes_per_s"]


def compare(specs, options):
    one, all_of_them = specs[0], f"stripe(chunk=64k):{','.join(specs)}"
    count = len(specs)
    print(f"\n### {count} hosts beside one, links of {options.rate} each\n")
    print(f"| load, depth for each host | one host, MB/s | {count} hosts, MB/s | {count} / 1 (lowest–highest of rounds) |")
    print("|---|---:|---:|---:|")
    for title, rw, bs, depth in LOADS:
        results = common.rounds({"one": lambda: rate_of(one, rw, bs, depth, options.seconds),
                                 "all": lambda: rate_of(all_of_them, rw, bs, depth * count, options.seconds)}, options.rounds)
        each = [all_ / one_ for all_, one_ in zip(results["all"], results["one"])]
        print(f"| {title}, {depth} | {statistics.median(results['one']) / 1e6:,.1f} | {statistics.median(results['all']) / 1e6:,.1f} "
              f"| {statistics.median(each):.2f} ({min(each):.2f}–{max(each):.2f}) |", flush=True)


def run(options):
    missing = [tool for tool in ("ip", "tc") if not shutil.which(tool)]
    if missing or os.geteuid() != 0:
        print(f"hosts are left out: they need root, ip and tc{'; missing: ' + ', '.join(missing) if missing else ''}", file=sys.stderr)
        return
    with contextlib.ExitStack() as stack:
        try:
            made = list(hosts(stack, options.hosts, options.rate))
        except subprocess.CalledProcessError as error:
            print(f"hosts are left out: {' '.join(error.cmd)}: {error.stderr.strip()}", file=sys.stderr)
            return
        for name, address in made:
            serve(stack, name, address)
        compare([f"nbd://{address}" for _, address in made], options)


def arguments(parser):
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--rate", default="800mbit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)

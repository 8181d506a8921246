"""flashwright's NBD server and client beside their peers over loopback.

Each contender is a pair, a server and a client. One round runs every pair once, in a rotating order; the figure is
the median over rounds of a ratio within the same round. What is compared is IOPS per core: requests, divided by the
CPU seconds that the server's process and the client's together spent on them, user and system. On loopback both
share the machine, so this says what a request costs, whichever of the two is in the way. IOPS are shown beside it.

Servers: flashwright memory serve, nbdkit's memory plugin, qemu-nbd over a file in memory. Clients: flashwright bench,
fio's nbd engine (a job is a connection), qemu-img bench (one connection; its requests follow each other, for it knows
no random ones), nbdcopy (1 MiB reads of all of it). What is not installed is left out, and said.
"""

import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import common

SIZE = 512 << 20
TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """A process that serves SIZE bytes of written memory on a port."""

    def __init__(self, name, command, port):
        self.name, self.uri = name, f"nbd://127.0.0.1:{port}"
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > until or self.process.poll() is not None:
                    self.stop()
                    sys.exit(f"{name} does not listen: {' '.join(command)}")
                time.sleep(0.02)

    def cpu_seconds(self):
        """User and system time of all its threads."""
        return sum(self.times()) / TICKS

    def user_seconds(self):
        return self.times()[0] / TICKS

    def times(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return int(fields[11]), int(fields[12])

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def servers(directory):
    """Every server that is installed, running and filled."""
    made = []

    def start(name, tool, command):
        if not shutil.which(tool) and not os.path.exists(tool):
            print(f"no {tool}: {name} is left out", file=sys.stderr)
            return
        port = free_port()
        made.append(Server(name, command(port), port))

    start("flashwright", common.OURS, lambda port: [common.OURS, "memory", "serve", "--size", str(SIZE), "--listen",
                                                    f"127.0.0.1:{port}", "--insecure"])
    start("nbdkit", "nbdkit", lambda port: ["nbdkit", "--foreground", "--ipaddr", "127.0.0.1", "--port", str(port), "memory",
                                            str(SIZE)])
    image = os.path.join(directory, "image")
    with open(image, "wb") as file:
        file.truncate(SIZE)
    start("qemu-nbd", "qemu-nbd", lambda port: ["qemu-nbd", "--format=raw", "--shared=64", "--persistent", "--bind=127.0.0.1",
                                                f"--port={port}", image])
    for server in made:
        # Never all zeros: some servers keep nothing for those, and read nothing then.
        common.execute([common.OURS, "bench", "--rw=write", "--bs=1m", "--iodepth=4", "--time_based=0", "--target", server.uri,
                        "--destroy", server.uri, "--json"])
    return made


class Load:
    def __init__(self, title, bs, depth, connections, random):
        self.title, self.bs, self.depth, self.connections, self.random = title, bs, depth, connections, random


def ours(server, load, seconds):
    rw = "randread" if load.random else "read"
    target = f"{server.uri}?connections={load.connections}"
    text, user, system = common.execute([common.OURS, "bench", f"--rw={rw}", f"--bs={load.bs}", f"--iodepth={load.depth}",
                                         f"--runtime={seconds}s", "--norandommap=1", "--target", target, "--json"])
    document = json.loads(text)
    return document["record"]["total"]["ios"], document["iops"], user + system


def fio(server, load, seconds):
    rw = "randread" if load.random else "read"
    text, user, system = common.execute(
        [common.FIO, "--name=peer", "--ioengine=nbd", f"--uri={server.uri}", f"--rw={rw}", f"--bs={load.bs}",
         f"--iodepth={load.depth // load.connections}", f"--numjobs={load.connections}", "--group_reporting", "--thread",
         f"--size={SIZE}", "--norandommap", f"--runtime={seconds}", "--time_based", "--output-format=json"])
    job = json.loads(text[text.index("{"):])["jobs"][0]["read"]
    return job["total_ios"], job["iops"], user + system


def qemu_img(server, load, seconds):
    bytes_each = {"4k": 4096, "1m": 1 << 20}[load.bs]
    # It counts requests, not seconds: a first run says how many fit.
    rate = qemu_img.rates.setdefault((server.name, load.title), None)
    if rate is None:
        _, rate, _ = qemu_img_requests(server, load, bytes_each, 2000)
        qemu_img.rates[(server.name, load.title)] = rate
    return qemu_img_requests(server, load, bytes_each, max(2000, int(rate * seconds)))


qemu_img.rates = {}


def qemu_img_requests(server, load, bytes_each, count):
    # Offsets wrap by themselves only where the image ends, so the step comes to the same as in any other scan.
    text, user, system = common.execute(["qemu-img", "bench", "-f", "raw", "-t", "none", "-c", str(count), "-d", str(load.depth),
                                         "-s", str(bytes_each), server.uri])
    seconds = float(re.search(r"completed in ([\d.]+) seconds", text).group(1))
    return count, count / max(seconds, 1e-9), user + system


def nbdcopy(server, load, _seconds):
    begun = time.monotonic()
    _, user, system = common.execute(["nbdcopy", f"--connections={load.connections}",
                                      f"--requests={max(1, load.depth // load.connections)}", f"--request-size={1 << 20}",
                                      "--no-extents", server.uri, "null:"])
    ios = SIZE >> 20
    return ios, ios / (time.monotonic() - begun), user + system


def pairs(running, load):
    clients = [("flashwright", ours)]
    if common.FIO and "nbd" in subprocess.run([common.FIO, "--enghelp"], stdout=subprocess.PIPE, text=True).stdout:
        clients.append(("fio", fio))
    if shutil.which("qemu-img") and load.connections == 1:
        clients.append(("qemu-img", qemu_img))
    if shutil.which("nbdcopy") and load.bs == "1m":
        clients.append(("nbdcopy", nbdcopy))
    return [(server, name, client) for server in running for name, client in clients]


def measure(server, client, load, seconds):
    """Requests per CPU second of both, IOPS, and CPU microseconds a request of the client and of the server."""
    before = server.cpu_seconds()
    ios, iops, client_cpu = client(server, load, seconds)
    server_cpu = server.cpu_seconds() - before
    return {"core": ios / max(client_cpu + server_cpu, 1e-9), "iops": iops, "client": client_cpu / ios * 1e6,
            "server": server_cpu / ios * 1e6}


def is_ours(pair):
    return "flashwright" in pair


def compare(running, load, options):
    contenders = {(server.name, name): (lambda s=server, c=client: measure(s, c, load, options.seconds))
                  for server, name, client in pairs(running, load)}
    results = common.rounds(contenders, options.rounds)
    peers = [pair for pair in results if not is_ours(pair)]
    print(f"\n### {load.title}\n")
    print("| server | client | IOPS | client µs/IO | server µs/IO | IOPS per core | against the best peer pair (lowest–highest of rounds) "
          "| against that server's best peer client |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")

    def against(pair, others):
        if not others:
            return "–"
        rounds = [results[pair][n]["core"] / max(results[other][n]["core"] for other in others)
                  for n in range(options.rounds)]
        return "%.2f (%.2f–%.2f)" % (statistics.median(rounds), min(rounds), max(rounds))

    for pair in sorted(results, key=lambda pair: -statistics.median(r["core"] for r in results[pair])):
        middle = {key: statistics.median(run[key] for run in results[pair]) for key in results[pair][0]}
        same_server = [peer for peer in results if peer[0] == pair[0] and peer[1] != "flashwright"]
        print(f"| {pair[0]} | {pair[1]} | {middle['iops']:,.0f} | {middle['client']:.2f} | {middle['server']:.2f} "
              f"| {middle['core']:,.0f} | {against(pair, peers) if is_ours(pair) else ''} "
              f"| {against(pair, same_server) if pair[1] == 'flashwright' else ''} |", flush=True)


def run(options):
    """All comparisons; `options` has rounds, seconds, connections and large."""
    with open("/proc/sys/net/ipv4/tcp_congestion_control") as file:
        print(f"\nTCP's congestion control: {file.read().strip()}")
    place = "/dev/shm" if os.path.ismount("/dev/shm") else options.directory
    with tempfile.TemporaryDirectory(prefix="ratios-nbd-", dir=place) as directory:
        running = servers(directory)
        try:
            for connections in options.connections:
                word = "1 connection" if connections == 1 else f"{connections} connections"
                compare(running, Load(f"NBD over loopback, 4 KiB random reads, depth 64, {word}", "4k", 64, connections, True),
                        options)
            if options.large:
                compare(running, Load("NBD over loopback, 1 MiB reads, depth 4, 1 connection", "1m", 4, 1, False), options)
        finally:
            for server in running:
                server.stop()


def arguments(parser):
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=lambda text: [int(n) for n in text.split(",") if int(n)], default=[1, 4],
                        help="of the 4 KiB loads; 0 for none of these")
    parser.add_argument("--no-large", dest="large", action="store_false", help="leave out reads of 1 MiB")
    parser.add_argument("--directory", default=".")

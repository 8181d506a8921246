#!/usr/bin/env python3
"""The memory of eight nodes as a scratch drive, on one machine: docs/memory-drive.md, run.

Eight network namespaces, each with an address of its own on a bridge, stand for eight nodes. Each serves its memory; this
namespace is the ninth node, which uses them as one drive: measured as a device, and mounted as a file system (the stripe
exported to a Unix socket, nbdfuse, a loop device, ext4). Then one node is killed in the midst of a load. What is run is
printed before what it prints.

    python3 tools/eight_nodes.py [--binary FILE] [--nodes 8] [--size 256m] [--runtime 3s]

Needs root for namespaces and mounting, and ip(8); the mounted part nbdfuse (libnbd-bin), losetup and mkfs.ext4, and is left
out aloud where they are not. Everything that it makes it removes, also when it fails or is interrupted.
"""

import argparse
import contextlib
import glob
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TAG = f"fw{os.getpid() % 100000}"
NET = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"


def run(*words, quiet=False, check=True):
    """Runs a command, shows it as a shell would take it, and gives what it printed."""
    if not quiet:
        print(f"$ {shlex.join(words)}", flush=True)
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if not quiet:
        print(done.stdout, end="", flush=True)
    if check and done.returncode != 0:
        sys.exit(f"{shlex.join(words)}: exit code {done.returncode}\n{done.stdout if quiet else ''}")
    return done


def network(stack, nodes):
    """A bridge, and a namespace with an address on it for each node."""
    run("ip", "link", "add", f"{TAG}b", "type", "bridge", quiet=True)
    stack.callback(run, "ip", "link", "del", f"{TAG}b", quiet=True, check=False)
    run("ip", "address", "add", f"{NET}.1/24", "dev", f"{TAG}b", quiet=True)
    run("ip", "link", "set", f"{TAG}b", "up", quiet=True)
    for node in range(1, nodes + 1):
        name, here, there = f"{TAG}n{node}", f"{TAG}h{node}", f"{TAG}g{node}"
        run("ip", "netns", "add", name, quiet=True)
        # Its end of the cable goes with the namespace, and ours with that.
        stack.callback(run, "ip", "netns", "del", name, quiet=True, check=False)
        run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", name, quiet=True)
        run("ip", "link", "set", here, "master", f"{TAG}b", "up", quiet=True)
        run("ip", "-n", name, "address", "add", f"{NET}.{10 + node}/24", "dev", there, quiet=True)
        run("ip", "-n", name, "link", "set", there, "up", quiet=True)
        run("ip", "-n", name, "link", "set", "lo", "up", quiet=True)
        yield name, f"{NET}.{10 + node}"


def end(process):
    """Ends a process that was started here, and waits for it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def start(stack, words, log):
    """Starts what stays, and shows how."""
    print(f"$ {shlex.join(words)} &", flush=True)
    process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
    stack.callback(end, process)
    return process


def until(what, true, process=None):
    """Waits for something that is sure to come, unless the process is gone that makes it."""
    begun = time.monotonic()
    while not true():
        if process is not None and process.poll() is not None:
            sys.exit(f"{what}: the process ended with {process.returncode}")
        if time.monotonic() - begun > 300:
            sys.exit(f"{what}: not in five minutes")
        time.sleep(0.05)


def mounted(stack, options, spec, place):
    """The drive as a file system."""
    missing = [tool for tool in ("nbdfuse", "losetup", "mkfs.ext4") if shutil.which(tool) is None]
    if not os.path.exists("/dev/fuse"):
        missing.append("/dev/fuse")
    if missing:
        print(f"SKIP the mounted file system: no {', '.join(missing)}")
        return
    socket, drive, files = f"{place}/drive.sock", f"{place}/drive", f"{place}/files"
    log = open(f"{place}/export.log", "w", encoding="utf-8")
    export = start(stack, [options.binary, "volume", "export", spec, "--socket", socket], log)
    until("the export", lambda: os.path.exists(socket), export)
    open(drive, "w", encoding="utf-8").close()
    os.mkdir(files)
    fuse = start(stack, ["nbdfuse", drive, f"nbd+unix:///?socket={socket}"], log)
    stack.callback(run, "umount", drive, quiet=True, check=False)
    until("nbdfuse", lambda: os.path.getsize(drive) > 0, fuse)
    loop = run("losetup", "--find", "--show", drive).stdout.strip()
    stack.callback(run, "losetup", "--detach", loop, quiet=True, check=False)
    run("mkfs.ext4", "-q", loop)
    run("mount", loop, files)
    stack.callback(run, "umount", files, quiet=True, check=False)
    run("df", "--output=size,used,avail,target", "-h", files)
    data = os.urandom(32 << 20)
    with open(f"{files}/checkpoint", "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    with open("/proc/sys/vm/drop_caches", "w", encoding="utf-8") as drop:
        drop.write("3\n")
    with open(f"{files}/checkpoint", "rb") as back:
        same = back.read() == data
    print(f"a checkpoint of 32 MiB, written, dropped from the page cache and read again: {'the same' if same else 'DIFFERENT'}")
    if not same:
        sys.exit(1)
    run("umount", files)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/release/flashwright")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--size", default="256m")
    parser.add_argument("--runtime", default="3s")
    options = parser.parse_args()
    options.binary = os.path.realpath(options.binary)
    if os.geteuid() != 0 or shutil.which("ip") is None:
        print("SKIP eight nodes: needs root and ip(8)")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="memory-drive-"))
        hosts = f"{place}/hosts"
        os.mkdir(hosts)
        servers = []
        for name, address in network(stack, options.nodes):
            log = open(f"{place}/{name}.log", "w", encoding="utf-8")
            serve = [options.binary, "memory", "serve", "--size", options.size, "--listen", address]
            serve += ["--insecure", "--announce", hosts]
            servers.append(start(stack, ["ip", "netns", "exec", name, *serve], log))
        for number, server in enumerate(servers, 1):
            until("a server", lambda n=number: len(glob.glob(f"{hosts}/*")) >= n, server)
        places = sorted(os.listdir(hosts))
        spec = "stripe(chunk=64k):" + ",".join(f"nbd://{place}/?timeout=5" for place in places)
        print(f"drive: {spec}")
        bench = [options.binary, "bench", "--target", spec]
        run(*bench, "--rw=write", "--bs=1m", "--iodepth=16", "--time_based=0")
        run(*bench, "--rw=read", "--bs=1m", "--iodepth=16", f"--runtime={options.runtime}")
        run(*bench, "--rw=randread", "--bs=4k", "--iodepth=64", f"--runtime={options.runtime}")
        run(*bench, "--rw=randwrite", "--bs=4k", "--iodepth=64", f"--runtime={options.runtime}")
        with contextlib.ExitStack() as inner:
            mounted(inner, options, spec, place)
        print("One node dies in the midst of a load:", flush=True)
        load = [*bench, "--rw=randread", "--bs=4k", "--iodepth=64", "--runtime=600s"]
        with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
            bench = start(stack, load, said)
            time.sleep(2)
            servers[0].kill()
            bench.wait(120)
            said.seek(0)
            print(said.read(), end="")
            print(f"exit code {bench.returncode}")


if __name__ == "__main__":
    main()

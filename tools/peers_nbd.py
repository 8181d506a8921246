#!/usr/bin/env python3
"""Runs the test suites of libnbd and nbdkit against flashwright's NBD server and client.

    tools/peers_nbd.py [--only REGEX] [--jobs N] [--table] FLASHWRIGHT DIR...

DIR is a source tree of libnbd or of nbdkit with its programs and tests built beside the product. Their tests start a server
by the name `nbdkit`; first on PATH is this file by that name, which starts one of ours in its place:

  server   `memory serve` or `volume export`, where the test asks for no more than memory, zeroes or a file;
  through  the nbdkit that was asked for, with its plugin and filters, and `volume export nbd+unix://...` in front, so that
           what the test does and looks at goes through our client and our server.

A line tells of each test and way: pass; fail, and why; skip, and why. Exit code 1: a failure that WHY does not explain.
"""

import argparse
import concurrent.futures
import ctypes
import getopt
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

# Failures that are understood: why, and whose, or what they say of themselves.
WHY = {name: why for why, names in {
    "looks at where a plugin has holes; of what is reached over NBD our server says that all of it is data": """
        meta-base-allocation 460-block-status.py info-cmd-map-totals.sh info-map-base-allocation-json.sh
        info-map-base-allocation-large.sh info-map-base-allocation-weird.sh info-map-base-allocation.sh info-map-totals-json.sh
        info-map-totals.sh copy-nbd-error.sh copy-sparse.sh copy-sparse-allocated.sh copy-sparse-no-extents.sh
        copy-sparse-request-size.sh copy-sparse-to-stream.sh test-data-extents.sh test-file-extents.sh test-nbd-extents.sh
        test-split-extents.sh test-offset-extents.sh test-truncate-extents.sh test-retry-extents.sh test-swab-extents.sh
        test-sh-extents.sh test-blocksize-extents.sh test-cacheextents.sh test-cow-extents1.sh test-extentlist.sh
        test-log-extents.sh test-readahead-copy.sh""",
    "expects of nbdkit's null plugin no bytes, holes, or that it forgets what is written; memory stands for it": """
        info-null.sh info-map-base-allocation-zero.sh test-null test-null-extents.sh test-nbdkit-file-null.sh""",
    "looks at what nbdkit promises, refuses or says of its export; the server in front speaks for itself": """
        can-fua-flag can-not-trim-flag can-not-zero-flag can-not-fast-zero-flag can-cache-flag is-rotational-flag opt-list
        opt-set-meta info-can.sh info-can-zero.sh info-description.sh info-packets.sh test-context.sh test-eflags.sh
        errors-server-oversize errors-client-unadvertised-cmd errors-server-unadvertised-cmd test-eval-cache.sh
        test-blocksize-error-policy.sh 220-opt-list.py""",
    "wants a read of no bytes refused; the protocol leaves that open, and ours answers it": "errors-server-zerosize",
    "counts, orders, turns away or ends nbdkit's connections; ours in front makes its own, and again when they are lost": """
        newstyle-limited test-disconnect.sh test-disconnect-tls.sh test-shutdown.sh test-parallel-file.sh test-parallel-nbd.sh
        test-sh-errors.sh test-blocksize-write-disconnect.sh test-delay-shutdown.sh test-exitlast.sh
        test-exitwhen-file-created.sh test-exitwhen-file-created-reject-new.sh test-exitwhen-file-created-when-idle.sh
        test-exitwhen-file-deleted.sh test-exitwhen-process-exits.sh test-exitwhen-script.sh test-limit.sh test-multi-conn.sh
        test-multi-conn-name.sh test-retry.sh test-retry-size.sh test-retry-reopen-fail.sh test-retry-zero-flags.sh
        test-retry-open.sh test-retry-request-open.sh test-ip-filter.sh test-ip-filter-pid.sh test-ip-filter-anyunix.sh
        test-ip-filter-uid.sh test-ip-filter-gid.sh test-delay-open.sh test-delay-close.sh""",
    "looks at the requests as they reach the plugin; ours come in other pieces, and a flush stands for FUA": """
        test-blocksize.sh test-fua.sh test-log.sh test-log-script-info.sh test-layers""",
    "asks for one of many names; an export of ours has one": """
        list-exports-nbdkit info-list-uris.sh info-uri.sh test-file-dir.sh test-long-name.sh test-exportname.sh""",
    "starts the server in front before the one behind, which ours asks at once": """
        test-nbd-tls.sh test-nbd-tls-psk.sh test-nozero.sh""",
    "derives keys for seconds at each connection, of which ours makes several": "test-luks-copy.sh test-luks-copy-zero.sh",
    "needs the kernel's module nbd, which is not here": "test-nbd-client.sh test-nbd-client-tls.sh",
    "looks at nbdkit's own standard input": "test-stdio.sh test-read-password.sh",
}.items() for name in names.split()}
SAID = {
    "has 0 bytes": "has an export of no bytes, which ours refuses",
    "oldstyle negotiation": "speaks the oldstyle negotiation (before 2011), which our client leaves",
    "no export": "asks for one of many names; an export of ours has one",
}

SKIPS = {"starts no server": "starts no server", "not built": "is a program that was not built here (most need libguestfs)",
         "^nbdkit |bytes: more|^the size": "asks for a plugin, a filter or an option of nbdkit's"}

# ---- the server that goes by the name of nbdkit ----

LONG = """dump-config dump-plugin exit-with-parent foreground no-fork help long-options mask-handshake= newstyle new-style
no-sr no-mc oldstyle old-style readonly read-only short-options single stdin swap verbose version vsock tls-verify-peer
print-url debug= export= export-name= exportname= filter= group= ip-addr= ipaddr= log= pid-file= pidfile= port= run=
selinux-label= threads= tls= tls-certificates= tls-psk= unix= user=""".split()
SHORT = {"-D": "--debug", "-e": "--export", "-f": "--foreground", "-h": "--help", "-i": "--ipaddr", "-n": "--newstyle",
         "-o": "--oldstyle", "-p": "--port", "-P": "--pidfile", "-r": "--readonly", "-s": "--single", "-t": "--threads",
         "-U": "--unix", "-v": "--verbose", "-V": "--version", "--no-fork": "--foreground", "--export-name": "--export",
         "--exportname": "--export", "--ip-addr": "--ipaddr", "--pid-file": "--pidfile", "--read-only": "--readonly",
         "--stdin": "--single", "--old-style": "--oldstyle", "--new-style": "--newstyle"}
ASKS = {"--help", "--version", "--dump-config", "--dump-plugin", "--short-options", "--long-options"}
BACKEND = {"--debug", "--filter", "--log", "--mask-handshake", "--no-sr", "--oldstyle", "--readonly", "--threads", "--verbose"}


def note(kind, text):
    with open(os.environ["PEERS_LOG"], "a", encoding="utf-8") as log:
        log.write(f"{kind} {text}\n")


def leave_out(why):
    note("skip", why)
    sys.exit(77)


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def size_of(text):
    found = re.fullmatch(r"(\d+)([bkmgtpes]?)b?", text.lower())
    if not found:
        leave_out(f"the size {text}")
    return int(found[1]) * {"s": 512}.get(found[2], 1024 ** max("bkmgtpe".find(found[2]), 0))


def simple_server(plugin, params, options, scratch):
    """The arguments of a server of ours in place of a plugin that needs none of nbdkit's."""
    filters = [value for name, value in options if name == "--filter"]
    for name, _ in options:
        if name in ("--no-sr", "--mask-handshake", "--oldstyle"):
            leave_out(f"nbdkit {name}: ours has one way to negotiate")
    if filters or plugin not in ("memory", "null", "file"):
        leave_out("nbdkit with " + " ".join([plugin] + [f"--filter={name}" for name in filters]))
    values = dict(text.split("=", 1) if "=" in text else ("", text) for text in params)
    path = values.get("file", values.get("", ""))
    if plugin == "file":
        if set(values) - {"", "file"} or not os.path.isfile(path):
            leave_out(f"nbdkit file {' '.join(params)}")
    else:
        size = size_of(values.get("size", values.get("", "1m")))
        if 0 < size <= 1 << 30:
            return ["memory", "serve", "--size", str(size)]
        path = f"{scratch}/sparse"
        with open(path, "wb") as file:
            try:
                file.truncate(size)
            except (OSError, OverflowError):
                leave_out(f"{size} bytes: more than a file here can have")
    return ["volume", "export", "--direct", "0", path] + ([] if "--readonly" in dict(options) else ["--destroy", path])


def started(command, ready, errors):
    """A process of ours that has printed `ready`, or None."""
    with open(errors, "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                   preexec_fn=die_with_parent)
    if any(line.startswith(ready) for line in process.stdout):
        return process
    process.wait()
    return None


def pump(source, sink):
    """Copies one direction of a conversation until it ends."""
    try:
        while data := os.read(source, 1 << 18):
            while data:
                data = data[os.write(sink, data):]
    except OSError:
        pass


def relay(in_fd, out_fd, path):
    """A conversation over descriptors, held with the server at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as to:
        to.connect(path)
        back = threading.Thread(target=lambda: (pump(to.fileno(), out_fd), hang_up(out_fd)), daemon=True)
        back.start()
        pump(in_fd, to.fileno())
        to.shutdown(socket.SHUT_WR)
        back.join()


def hang_up(fd):
    try:
        socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def nbdkit(argv):
    """What nbdkit's command line asks for, done by a server of ours."""
    real = os.environ["PEERS_NBDKIT"]
    options, words = getopt.gnu_getopt(argv, "46D:e:fg:hi:nop:P:rst:u:U:vVz", LONG)
    options = [(SHORT.get(name, name), value) for name, value in options]
    asked = dict(options)
    if asked.keys() & ASKS or not words:
        os.execv(real, [real] + argv)
    for name in ("--vsock", "--swap", "--selinux-label", "-u", "-g"):
        if name in asked:
            leave_out(f"nbdkit {name}")
    if asked.get("--tls") == "on":
        leave_out("nbdkit --tls=on: ours demands TLS or has none")
    if words[0] == "null" and not any(re.match(r"size=|\d", word) for word in words[1:]):
        words.insert(1, "1M")  # it has no bytes: ours have one at least
    scratch = tempfile.mkdtemp(prefix="peers-")
    unix = asked.get("--unix", "-" if "--port" not in asked else None)
    activated = "--single" not in asked and os.environ.get("LISTEN_FDS") == "1"
    path = f"{scratch}/ours" if unix in ("-", None) else os.path.abspath(unix)
    background = not (asked.keys() & {"--foreground", "--single", "--run", "--exit-with-parent"} or activated)
    if "--exit-with-parent" in asked:
        die_with_parent()
    told, tell = os.pipe()
    if background and os.fork():
        os.close(tell)
        os._exit(int(os.read(told, 9) or b"1"))
    code = 1
    processes = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        code = serve(words, options, asked, scratch, path, real, processes,
                     lambda: (os.write(tell, b"0"), os.close(tell)), background, activated)
    except SystemExit as end:
        code = end.code
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for process in reversed(processes):
            process.terminate()
            process.wait()
        shutil.rmtree(scratch, ignore_errors=True)
        if background:
            try:
                os.write(tell, b"%d" % code)
            except OSError:
                pass
    os._exit(code)


def serve(words, options, asked, scratch, path, real, processes, ready, background, activated):
    if os.environ["PEERS_WAY"] == "server":
        device = simple_server(words[0], words[1:], options, scratch)
    else:
        behind = f"{scratch}/theirs"
        passed = [f"{name}={value}" if value else name for name, value in options if name in BACKEND]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LISTEN_")}
        theirs = subprocess.Popen([real, "-f", "-U", behind, "-P", behind + ".pid"] + passed + words, env=environment,
                                  preexec_fn=die_with_parent, stdin=subprocess.DEVNULL if "--single" in asked else None,
                                  stdout=subprocess.DEVNULL if "--single" in asked else None)
        processes.append(theirs)
        while not os.path.exists(behind + ".pid"):
            try:
                return theirs.wait(0.02)
            except subprocess.TimeoutExpired:
                pass
        uri = f"nbd+unix:///{asked.get('--export', '')}?socket={behind}"
        device = ["volume", "export", "--direct", "0", uri] + ([] if "--readonly" in asked else ["--destroy", uri])
    note("start", os.environ["PEERS_WAY"])
    command = [os.environ["PEERS_FLASHWRIGHT"]] + device + ["--export", asked.get("--export", "")]
    tls = "--tls" in asked and asked["--tls"] == "require"
    if tls and "--tls-psk" in asked:
        command += ["--tls-psk", asked["--tls-psk"]]
    elif tls:
        command += ["--tls-certificates", asked.get("--tls-certificates", ".")]
        command += [] if "--tls-verify-peer" in asked else ["--tls-anonymous"]
    if "--port" in asked:
        hosts = ["[::1]"] if asked.get("--ipaddr") == "::1" else ["127.0.0.1"] + ["[::1]"] * ("--ipaddr" not in asked)
        command += [f"--listen={host}:{asked['--port']}" for host in hosts] + ([] if tls else ["--insecure"])
    else:
        command += ["--socket", path]
    command += ["--read-only"] * ("--readonly" in asked)
    ours = started(command, b"ready", scratch + "/errors")
    if not ours and "read-only" in open(scratch + "/errors", encoding="utf-8").read():
        ours = started(command + ["--read-only"], b"ready", scratch + "/errors")
    if not ours:
        note("refused", open(scratch + "/errors", encoding="utf-8").read().split("\n")[0])
        return 1
    processes.append(ours)
    if "--pidfile" in asked:
        with open(asked["--pidfile"], "w", encoding="utf-8") as file:
            file.write(f"{ours.pid}\n")
    ready()
    if background:
        with open(os.devnull, "r+b") as null:
            for fd in (0, 1):
                os.dup2(null.fileno(), fd)
    if "--single" in asked:
        relay(0, 1, path)
        return 0
    if activated:
        threading.Thread(target=accept, args=(socket.socket(fileno=3), path), daemon=True).start()
    if "--run" in asked:
        return run(asked, path, tls, ours)
    ours.wait()
    return 0


def accept(listener, path):
    while True:
        peer, _ = listener.accept()
        threading.Thread(target=lambda peer=peer: (relay(peer.fileno(), peer.fileno(), path), peer.close()),
                         daemon=True).start()


def run(asked, path, tls, ours):
    name, port = asked.get("--export", ""), asked.get("--port", "")
    uri = "nbds" if tls else "nbd"
    end = f"/{name}" if name else ""
    uri += f"://localhost:{port}{end}" if port else f"+unix://{end}?socket={path}"
    script = f"uri='{uri}'\nnbd=\"$uri\"\nexportname='{name}'\n" + ("tls=2\n" if tls else "")
    script += f"port={port}\nunixsocket={'' if port else path}\n{asked['--run']}"
    code = subprocess.call(["/bin/sh", "-c", script])
    if ours.poll() is not None:
        code = ours.returncode
    return 128 - code if code < 0 else code


# ---- the tests ----

def tests_of(tree):
    """Directories and names of a suite's tests, as its makefiles list them."""
    for folder in ("tests", "interop", "info", "copy", "fuse", "dump", "sh", "python/t"):
        at = os.path.join(tree, folder)
        makefile = os.path.join(at, "Makefile.am")
        names = sorted(name for name in os.listdir(at) if re.fullmatch(r"info-.*\.sh|[2-9]\d\d-.*\.py", name)) \
            if os.path.isdir(at) else []
        if os.path.exists(makefile):
            with open(makefile, encoding="utf-8") as file:
                for listed in re.findall(r"^\w*TESTS\s*\+?=((?:.*\\\n)*.*)", file.read(), re.M):
                    names += [word for word in listed.replace("\\\n", " ").split() if re.fullmatch(r"[\w.-]+", word)]
        for name in dict.fromkeys(names):
            yield tree, folder, name


def run_test(test, way, arguments, shims, real):
    """(verdict, why) of one test, run one way."""
    tree, folder, name = test
    at = os.path.join(tree, folder)
    if not os.path.exists(os.path.join(at, name)):
        return "skip", "its program is not built"
    with tempfile.TemporaryDirectory(prefix="peers-test-") as scratch:
        log = os.path.join(scratch, "log")
        open(log, "w", encoding="utf-8").close()
        with open(os.path.join(tree, "configure.ac"), encoding="utf-8") as file:
            version = re.search(r"AC_INIT\(\[libnbd\],\[([\d.]+)\]", file.read())
        environment = dict(os.environ, PATH=f"{shims}:{os.environ['PATH']}", PEERS_LOG=log, PEERS_WAY=way, PEERS_NBDKIT=real,
                           PEERS_FLASHWRIGHT=arguments.flashwright, srcdir=".", SRCDIR=".", LIBNBD_DEBUG="1",
                           QEMU_NBD="qemu-nbd", QEMU_STORAGE_DAEMON="qemu-storage-daemon", PYTHON="python3",
                           PSKTOOL="psktool", EXPECTED_VERSION=version[1] if version else "", XDG_RUNTIME_DIR=scratch)
        command = (["python3", name] if name.endswith(".py") else ["./" + name])
        command = [path for tree in arguments.trees if os.path.exists(path := os.path.join(tree, "run"))][:1] + command
        if folder == "python/t":
            at, command[-1] = os.path.dirname(at), "t/" + name
        with open(os.path.join(scratch, "out"), "w+b") as out:
            process = subprocess.Popen(command, cwd=at, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                       start_new_session=True)
            try:
                code = process.wait(arguments.timeout)
            except subprocess.TimeoutExpired:
                code = "no end"
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            out.seek(0)
            lines = out.read().decode("utf-8", "replace").split("\n")
        if code == "no end":
            lines.append(f"error: no end within {arguments.timeout} s")
        if arguments.keep:
            shutil.copy(out.name, os.path.join(arguments.keep, f"{os.path.basename(tree)}-{name}.{way}"))
        with open(log, encoding="utf-8") as file:
            notes = [line.rstrip("\n").split(" ", 1) for line in file]
    for kind, text in notes:
        if kind == "skip":
            return "skip", text
    said = [line.strip() for line in lines if not re.match(r"\+|libnbd: debug|\S*nbdkit: .*debug", line)]
    last = next((line for line in reversed(said) if re.search("fail|rror|!=|unexpected|too quick|requir|skip", line)), "")[:160]
    if code == 77 or name.endswith(".py") and lines[0].startswith("skip"):
        return "skip", last
    if not any(kind in ("start", "refused") for kind, _ in notes):
        return "skip", "starts no server of ours" if code == 0 else f"ended before it started a server: {last}"
    if code == 0:
        return "pass", ""
    last = next((text for kind, text in notes if kind == "refused"), f"{code}: {last}")
    return "fail", WHY.get(name) or next((why for words, why in SAID.items() if words in last), "? " + last)


def table(results):
    """The results as Markdown: how many, what passes, and the rest by its reason."""
    short = lambda name: re.sub(r"^test-|\.(sh|py)$", "", name)
    print("| suite | way | pass | fail | skip |\n|---|---|---|---|---|")
    groups = {}
    for suite, name, way, verdict, why in results:
        groups.setdefault((suite, way), {}).setdefault(verdict, []).append(short(name))
    for (suite, way), group in groups.items():
        print(f"| {suite} | {way} | " + " | ".join(str(len(group.get(kind, []))) for kind in ("pass", "fail", "skip")) + " |")
    print("\n| pass | tests |\n|---|---|")
    for (suite, way), group in groups.items():
        print(f"| {suite}, {way} | {', '.join(group.get('pass', []))} |")
    print("\n| fail, because the test | tests |\n|---|---|")
    reasons, skips = {}, {}
    for suite, name, way, verdict, why in results:
        if verdict == "fail":
            reasons.setdefault(why, []).append(short(name) + (" (server)" if way == "server" else ""))
        elif verdict == "skip":
            kind = next((kind for words, kind in SKIPS.items() if re.search(words, why)), "misses something on the machine")
            skips.setdefault((way, kind), []).append(name)
    for why, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"| {why} | {', '.join(names)} |")
    print("\n| skip, because the test | way | tests |\n|---|---|---|")
    for (way, kind), names in sorted(skips.items()):
        print(f"| {kind} | {way} | {len(names)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flashwright", type=os.path.abspath)
    parser.add_argument("trees", nargs="+", type=os.path.abspath, metavar="DIR")
    parser.add_argument("--only", default="", help="tests whose names match this expression")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=120, help="seconds that a test may take")
    parser.add_argument("--table", action="store_true", help="at the end the same as Markdown")
    parser.add_argument("--keep", help="a directory for what the tests printed")
    arguments = parser.parse_args()
    built = [path for tree in arguments.trees if os.access(path := os.path.join(tree, "nbdkit"), os.X_OK)]
    real = built[0] if built else shutil.which("nbdkit")
    tests = [test for tree in arguments.trees for test in tests_of(tree) if re.search(arguments.only, test[2])]
    with tempfile.TemporaryDirectory(prefix="peers-bin-") as shims, \
            concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        os.symlink(os.path.abspath(__file__), os.path.join(shims, "nbdkit"))
        both = lambda test: [(way, *run_test(test, way, arguments, shims, real)) for way in ("server", "through")]
        told = []
        for (tree, folder, name), results in zip(tests, pool.map(both, tests)):
            for way, verdict, why in results:
                suite = os.path.basename(tree)
                print(f"{verdict:5} {way:8} {suite}/{folder}/{name}" + (f": {why}" if why else ""), flush=True)
                told.append((suite, name, way, verdict, why))
    if arguments.table:
        table(told)
    sys.exit(any(verdict == "fail" and why.startswith("?") for *_, verdict, why in told))


if __name__ == "__main__":
    if os.path.basename(sys.argv[0]) == "nbdkit":
        nbdkit(sys.argv[1:])
    else:
        main()

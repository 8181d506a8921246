"""The guest: a small machine with 16 throttled NVMe drives under software emulation.

What the host can do with it:

* `run` a shell script in it and get exit code, output and errors back, over a virtio-serial port of its own;
* `limit` a drive, at any time: each has a throttle group, which stands for the drive's own speed;
* `cut_power`: qemu ends at once, as a machine does whose plug is pulled. What the guest had not written
  to its drives is lost, what is on the drives and on the state disk is there at the next `boot`;
* instead of the sixteen drives have some that forget: they lose what they were not told to flush as well;
* `close`: the process is ended and the drives' files are removed, however the lab ends.

Nothing here knows what is tested. All waiting is for an answer or an end, bounded by a time-out that says
what was waited for.
"""

import base64
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import forgetful
import kit

DRIVES = 16
DRIVE_BYTES = 384 << 20  # mkfs.xfs makes nothing below 300 MiB
STATE_BYTES = 1 << 30
MEMORY_MIB = 2048
BOOT_TIMEOUT_S = 300  # a host that others use takes as long for what else takes ten seconds
# Without `erms` the kernel copies and clears memory by words: under emulation each step of `rep movsb` takes as long as one of `rep movsq`.
CPU = "max,-erms,-fsrm"
# Without `no_timer_check` the kernel panics when the host lets it wait for its first timer interrupts. A program that has other
# addresses each time is translated each time: it takes twice as long to start.
KERNEL_ARGUMENTS = "no_timer_check norandmaps"
# The largest request that qemu's NVMe takes in one piece is 512 KiB; larger ones count as several.


class Dead(Exception):
    """The guest ended, or no longer answers."""


class Answer:
    """What a script in the guest came to."""

    def __init__(self, script, code, raw, errors):
        self.script, self.code, self.raw, self.err = script, code, raw, errors.decode(errors="replace")

    @property
    def out(self):
        return self.raw.decode(errors="replace")

    @property
    def json(self):
        return json.loads(self.raw)

    def __str__(self):
        said = " | ".join(line for line in (self.err or self.out).strip().splitlines()[-6:])
        return f"exit code {self.code}: {said}"


class Guest:
    """One machine: its drives live as long as this object, its process from `boot` to `cut_power`."""

    def __init__(self, kernel, initramfs, binary):
        self.kernel, self.initramfs = kernel, initramfs
        self.process = self.agent = self.monitor = None
        self.forgetful = []  # drives with a volatile write cache, instead of the sixteen
        self.directory = tempfile.mkdtemp(prefix="flashwright-lab-")
        self.payload = os.path.join(self.directory, "payload")
        try:
            self.pack(binary)
            self.fresh_disks()
        except BaseException:
            self.close()
            raise

    def pack(self, binary):
        """The program, its libraries, and what it reads, as a file system that the guest mounts: of a hundred megabytes it reads a part."""
        with tempfile.TemporaryDirectory(dir=self.directory) as tree:
            stripped = os.path.join(tree, "flashwright")
            # Symbols and line tables are more than half of it.
            kit.run("strip", "-o", stripped, binary)
            for library in kit.libraries(stripped):
                shutil.copy(library, tree)
            for what, of in (("spaces", kit.HERE), ("examples", kit.ROOT)):
                shutil.copytree(os.path.join(of, what), os.path.join(tree, what))
            # Room for what the file system needs itself.
            used = sum(os.path.getsize(os.path.join(at, name)) + 4096 for at, _, names in os.walk(tree) for name in names)
            with open(self.payload, "wb") as file:
                file.truncate(used * 9 // 8 + (1 << 20))
            kit.run(kit.which("mkfs.ext4"), "-q", "-O", "^has_journal", "-m", "0", "-d", tree, self.payload)

    def path(self, name):
        return os.path.join(self.directory, name)

    def fresh_disks(self, forgetful_drives=0):
        """Drives and state disk as they come out of the box: all zeros, taking no room. With `forgetful_drives` there are
        so many that forget, and none of the others."""
        self.let_go()
        for name, size in [(f"drive{index}", DRIVE_BYTES) for index in range(DRIVES)] + [("state", STATE_BYTES)]:
            with open(self.path(name), "wb") as file:
                file.truncate(size)
        self.forgetful = [forgetful.Drive(self.path(f"drive{index}")) for index in range(forgetful_drives)]

    def let_go(self):
        for drive in self.forgetful:
            drive.close()
        self.forgetful = []

    def command(self, arguments, queue_pairs, formats):
        """qemu's command line; `arguments` are further ones of the kernel's, `queue_pairs` the pairs of queues of a drive, `formats`
        by drive how its namespace is formatted, in qemu's words, where that is not as usual."""
        words = [kit.which("qemu-system-x86_64"), "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", CPU, "-smp", "2",
                 # The firmware is to leave the drives alone. Its driver reads the first block of each and names no place for metadata:
                 # they come to address 0, over the interrupt vectors, and the next tick of the timer leads nowhere.
                 "-boot", "strict=on",
                 "-m", str(MEMORY_MIB), "-nodefaults", "-display", "none", "-no-reboot", "-nic", "none",
                 "-kernel", self.kernel, "-initrd", self.initramfs, "-append", f"console=ttyS0 quiet panic=-1 rdinit=/init {KERNEL_ARGUMENTS} {arguments}",
                 "-chardev", f"file,id=console,path={self.path('console')},append=on", "-serial", "chardev:console",
                 "-chardev", f"socket,id=monitor,path={self.path('monitor.sock')}", "-mon", "chardev=monitor,mode=control",
                 # Each port has two queues with eventfds, which qemu polls in each round: 31 ports, unless it is told. The first is a
                 # console's.
                 "-device", "virtio-serial-pci,max_ports=2", "-chardev", f"socket,id=agent,path={self.path('agent.sock')}",
                 "-device", "virtserialport,chardev=agent,name=agent"]
        # A flush in there need not reach the host's disk, which others use: a power cut here ends a process, not the host.
        for name, options in (("payload", ["-blockdev", f"driver=raw,node-name=payload,read-only=on,file.driver=file,file.filename={self.payload}"]),
                              ("state", ["-blockdev", f"driver=raw,node-name=state,cache.no-flush=on,file.driver=file,file.filename={self.path('state')}"])):
            words += options + ["-device", f"virtio-blk-pci,drive={name},serial={name}"]
        for index, drive in enumerate(self.forgetful):
            # These are told of each flush, over NBD. virtio has no forced writes (FUA), so the guest flushes after them;
            # qemu's NVMe (7.2) takes them and does not pass them on.
            words += ["-object", f"throttle-group,id=speed{index}",
                      "-blockdev", f"driver=throttle,node-name=drive{index},throttle-group=speed{index},"
                                   f"file.driver=nbd,file.server.type=unix,file.server.path={drive.socket_path}",
                      "-device", f"virtio-blk-pci,drive=drive{index},serial=forgetful{index},write-cache=on"]
        for index in range(0 if self.forgetful else DRIVES):
            words += ["-object", f"throttle-group,id=speed{index}",
                      "-blockdev", f"driver=throttle,node-name=drive{index},throttle-group=speed{index},cache.no-flush=on,"
                                   f"file.driver=raw,file.file.driver=file,file.file.filename={self.path(f'drive{index}')}",
                      "-device", f"pcie-root-port,id=port{index},chassis={index + 1},slot={index + 1}",
                      "-device", f"nvme,id=nvme{index},serial=LAB{index:04},bus=port{index},max_ioqpairs={queue_pairs}" + ("" if index in formats else f",drive=drive{index}")]
            if index in formats:
                words += ["-device", f"nvme-ns,drive=drive{index},bus=nvme{index},nsid=1,shared=off,{formats[index]}"]
        return words

    def boot(self, arguments="", queue_pairs=2, formats=None):
        """Starts the machine and waits for its agent."""
        started = time.monotonic()
        listeners = {name: self.listen(name) for name in ("monitor", "agent")}
        for drive in self.forgetful:
            drive.start()
        self.process = subprocess.Popen(self.command(arguments, queue_pairs, formats or {}), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(self.path("qemu.log"), "ab"),
                                        preexec_fn=end_with_parent)
        self.monitor = Monitor(self.accept(listeners["monitor"]), self.console)
        self.agent = Lines(self.accept(listeners["agent"]))
        self.number = 0
        self.receive(0, BOOT_TIMEOUT_S, "the guest's first words")
        return time.monotonic() - started

    def cpu_s(self):
        """Seconds of CPU time of the machine that runs and of all processes that have ended: a difference says what lies between."""
        # One that ended by itself may have been waited for (`console`) and be among those that have ended.
        if self.process is None or self.process.returncode is not None:
            running = 0
        else:
            with open(f"/proc/{self.process.pid}/stat") as file:
                running = sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
        ended = os.times()
        return running / os.sysconf("SC_CLK_TCK") + ended.children_user + ended.children_system

    def listen(self, name):
        path = self.path(f"{name}.sock")
        if os.path.exists(path):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(1)
        return listener

    def accept(self, listener):
        """The connection that qemu makes when it starts; its own words if it does not start."""
        listener.settimeout(BOOT_TIMEOUT_S)
        # qemu connects before it does anything that can fail for want of a file.
        with listener:
            try:
                return listener.accept()[0]
            except TimeoutError as error:
                with open(self.path("qemu.log")) as log:
                    raise Dead(f"qemu did not start: {log.read().strip()}") from error

    def run(self, script, timeout=120):
        """Runs a shell script in the guest."""
        self.number += 1
        encoded = base64.b64encode(script.encode()).decode()
        try:
            self.agent.send(f"{self.number} {encoded}\n", self.console)
            code, out, errors = self.receive(self.number, timeout, script)
        except Dead:
            # Whoever tidies up on the way out finds no machine, and the reason stays what it was.
            self.cut_power()
            raise
        return Answer(script, code, out, errors)

    def receive(self, number, timeout, what):
        decoded = lambda word: b"" if word == "-" else base64.b64decode(word)
        line = self.agent.line(timeout, what, self.console)
        words = line.split(" ")
        if len(words) != 4 or int(words[0]) != number:
            raise Dead(f"the agent's answer makes no sense: {line[:200]!r}")
        return int(words[1]), decoded(words[2]), decoded(words[3])

    def console(self):
        """How qemu ended, its own words and the last lines of the console, for whoever has to find out what happened."""
        words = []
        try:
            words.append(f"qemu ended with {self.process.wait(timeout=5)}")
        except subprocess.TimeoutExpired:
            words.append("qemu runs")
        for name in ("qemu.log", "console"):
            if os.path.exists(self.path(name)):
                with open(self.path(name), errors="replace") as file:
                    words += file.read().splitlines()[-15:]
        return "\n".join(words)

    def fetch(self, path, local):
        """Copies a file out."""
        answer = self.run(f"cat {path}")
        if answer.code != 0:
            raise Dead(f"{path} in the guest: {answer}")
        with open(local, "wb") as file:
            file.write(answer.raw)

    def limit(self, drives=None, iops=0, bytes_per_s=0):
        """Sets the speed of drives, all where none are named; 0 stands for as fast as the host goes."""
        for index in range(len(self.forgetful) or DRIVES) if drives is None else drives:
            self.monitor.execute("qom-set", path=f"/objects/speed{index}", property="limits", value={"iops-total": iops, "bps-total": bytes_per_s})

    def cut_power(self, luck=None):
        """Ends the machine at once; nothing in it is told. Drives that forget keep of what was not flushed nothing, or
        what chance (`luck`, a `random.Random`) has them keep; returns how many bytes were at stake on each."""
        if self.process is None:
            return []
        self.process.kill()
        self.process.wait()
        for connection in (self.agent, self.monitor):
            if connection is not None:
                connection.close()
        self.process = self.agent = self.monitor = None
        return [drive.cut(luck) for drive in self.forgetful]

    def close(self, keep=False):
        """Ends the machine and, unless they are to be kept, removes its drives."""
        self.cut_power()
        self.let_go()
        if not keep:
            shutil.rmtree(self.directory, ignore_errors=True)


class Lines:
    """A socket on which whole lines come and go."""

    def __init__(self, connection):
        self.connection, self.rest = connection, b""

    def send(self, text, context=lambda: ""):
        self.connection.settimeout(None)
        try:
            self.connection.sendall(text.encode())
        except OSError as error:
            raise Dead(f"the guest ended before: {text[:80]}\n{context()}") from error

    def line(self, timeout, what, context=lambda: ""):
        """The next line; `what` was waited for, and `context` is what to show when it does not come."""
        due = time.monotonic() + timeout
        pieces = [self.rest]
        while b"\n" not in pieces[-1]:
            left = due - time.monotonic()
            try:
                self.connection.settimeout(max(left, 0.001))
                data = self.connection.recv(1 << 20)
            except TimeoutError as error:
                raise Dead(f"no answer within {timeout} s to: {what}\n{context()}") from error
            except ConnectionError:
                data = b""
            if not data:
                raise Dead(f"the guest ended during: {what}\n{context()}")
            pieces.append(data)
        line, _, self.rest = b"".join(pieces).partition(b"\n")
        return line.decode()

    def close(self):
        self.connection.close()


class Monitor(Lines):
    """qemu's control port (QMP)."""

    def __init__(self, connection, context):
        super().__init__(connection)
        self.context = context
        self.line(BOOT_TIMEOUT_S, "qemu's greeting", context)
        self.execute("qmp_capabilities")

    def execute(self, command, **arguments):
        self.send(json.dumps({"execute": command, "arguments": arguments}) + "\n", self.context)
        while True:
            answer = json.loads(self.line(60, command, self.context))
            if "error" in answer:
                raise Dead(f"{command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]


def end_with_parent():
    """Has the kernel end this process when the lab is killed, so that no machine stays behind."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

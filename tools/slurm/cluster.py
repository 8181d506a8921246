"""A cluster of Slurm on this machine: munged, slurmctld and two slurmds of Debian's packages, all state in one folder."""

import ctypes
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

REPOSITORY = pathlib.Path(__file__).parents[2]
USER = "flashwright-slurm-test"
# What is waited for comes in seconds, and after a teardown that Slurm has killed in a minute; this bounds a test that has failed.
PATIENCE_S = 180
PR_SET_CHILD_SUBREAPER = 36
# Set when the tests are to end before their time: all waits fail then.
INTERRUPTED = threading.Event()


def until(condition, what: str):
    """The first true result of `condition`."""
    end = time.monotonic() + PATIENCE_S
    while not (result := condition()):
        assert time.monotonic() < end, f"has not come in {PATIENCE_S} s: {what}"
        assert not INTERRUPTED.wait(0.1), "interrupted"
    return result


def descendants(process: int) -> list[int]:
    """The living processes below one, children before their own."""
    children = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found, left = [], [process]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


class Cluster:
    """Running daemons. `with` ends all that came of them, whatever happened."""

    def __init__(self, folder: pathlib.Path, binary: str):
        self.folder, self.binary, self.daemons = folder, binary, {}
        # Daemons of jobs leave their parents: here they become children of this process, so that they can be ended by their numbers.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        folder.chmod(0o755)
        for name in ("conf", "munge", "run", "state", "state/records", "state/journals", "fast", "small", "slow", "ledger", "jobs"):
            (folder / name).mkdir(mode=0o755)
        for name in ("state/journals", "fast", "small", "ledger"):
            (folder / name).chmod(0o1777)
        (folder / "state/records").chmod(0o700)
        try:
            pwd.getpwnam(USER)
        except KeyError:
            subprocess.run(["useradd", "--system", "--no-create-home", USER], check=True, capture_output=True)
        user = pwd.getpwnam(USER)
        self.uid, self.gid = user.pw_uid, user.pw_gid
        for name in ("slow", "jobs"):
            os.chown(folder / name, self.uid, self.gid)
        self.configure()

    def configure(self):
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        ports = [one.getsockname()[1] for one in sockets]
        for one in sockets:
            one.close()
        host, folder, conf = socket.gethostname().split(".")[0], self.folder, self.folder / "conf"
        nodes = "\n".join(f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[number]} CPUs=8 State=UNKNOWN" for number in (1, 2))
        sample = (REPOSITORY / "contrib/slurm/slurm.conf").read_text()
        (conf / "slurm.conf").write_text(f"""{sample}
DebugFlags=BurstBuffer
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthInfo=socket={folder}/munge/socket
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldLogFile={folder}/run/slurmctld.log
SlurmdLogFile={folder}/run/slurmd-%n.log
StateSaveLocation={folder}/run/state
SlurmdSpoolDir={folder}/run/spool-%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
ReturnToService=2
KillWait=2
MpiDefault=none
{nodes}
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=10 State=UP
""")
        shutil.copy(REPOSITORY / "contrib/slurm/burst_buffer.conf", conf)
        shutil.copy(REPOSITORY / "contrib/slurm/burst_buffer.lua", conf)
        shutil.copytree(REPOSITORY / "contrib/slurm/flashwright", conf / "flashwright")
        (conf / "pools.toml").write_text(f"""ledger = "{folder}/ledger"
[pool.fast]
path = "{folder}/fast"
quota = "1g"
[pool.small]
path = "{folder}/small"
quota = "32m"
""")
        for key, value in {"flashwright": self.binary, "pools": f"{conf}/pools.toml", "state": f"{folder}/state", "poll": "0.2", "wait": "5s"}.items():
            self.set(key, value)

    def set(self, key: str, value):
        """Changes a setting of burst_buffer.lua, which is read by each call."""
        path = self.folder / "conf/burst_buffer.lua"
        value = f'"{value}"' if value else "nil"
        text, count = re.subn(rf"^\t{key} = .*,$", f"\t{key} = {value},", path.read_text(), flags=re.MULTILINE)
        assert count == 1, f"burst_buffer.lua has {count} settings {key}"
        new = path.with_suffix(".new")
        new.write_text(text)
        new.rename(path)

    def begin(self, name: str, *command, **options):
        log = open(self.folder / f"run/{name}.out", "ab")
        self.daemons[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment(), **options)
        log.close()

    def environment(self) -> dict:
        return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF": f"{self.folder}/conf/slurm.conf", "LANG": "C.UTF-8"}

    def __enter__(self):
        munge = self.folder / "munge"
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(0o600)
        self.begin("munged", "munged", "--foreground", f"--key-file={munge}/key", f"--socket={munge}/socket", f"--pid-file={munge}/pid",
                   f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        until((munge / "socket").exists, "munged")
        self.begin_controller()
        for node in ("n1", "n2"):
            self.begin(node, "slurmd", "-D", "-N", node)
        until(lambda: self.command("sinfo", "--noheader", "--format=%D %t").split() == ["2", "idle"], "two idle nodes")
        return self

    def begin_controller(self):
        self.begin("slurmctld", "slurmctld", "-D")
        until(lambda: subprocess.run(["scontrol", "ping"], env=self.environment(), capture_output=True).returncode == 0, "slurmctld")

    def begin_again(self):
        """After a scenario that has failed: what it has left is not to fail the next one."""
        self.set("bwlimit", None)
        if self.daemons["slurmctld"].poll() is not None:
            self.begin_controller()
        self.command("scancel", "--hurry", f"--user={USER}")

    def kill_controller(self):
        self.daemons["slurmctld"].kill()
        self.daemons["slurmctld"].wait()

    def __exit__(self, *_):
        for daemon in self.daemons.values():
            daemon.terminate()
        for sign in (signal.SIGTERM, signal.SIGKILL):
            end = time.monotonic() + 5
            while (left := descendants(os.getpid())) and (time.monotonic() < end or sign == signal.SIGKILL):
                for process in left:
                    try:
                        os.kill(process, sign)
                    except ProcessLookupError:
                        pass
                time.sleep(0.1)
                self.reap()
        subprocess.run(["userdel", USER], capture_output=True)

    @staticmethod
    def reap():
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass

    def command(self, *words, user: bool = False) -> str:
        options = {"user": self.uid, "group": self.gid, "extra_groups": []} if user else {}
        done = subprocess.run(words, env=self.environment(), capture_output=True, text=True, cwd=self.folder / "jobs", **options)
        return done.stdout + done.stderr

    def submit(self, script: str, *flags) -> str:
        """The number of the user's job, or why it is refused."""
        done = subprocess.run(["sbatch", "--parsable", f"--output={self.folder}/jobs/%j.out", "--time=5", *flags], input=script, text=True,
                              env=self.environment(), capture_output=True, cwd=self.folder / "jobs", user=self.uid, group=self.gid, extra_groups=[])
        return done.stdout.strip() if done.returncode == 0 else "refused: " + done.stderr

    def job(self, number: str) -> dict:
        """What Slurm says of a job."""
        text = self.command("scontrol", "--oneliner", "show", "job", number)
        facts = dict(re.findall(r"(?:^| )(\w+)=(.*?)(?= \w+=|$)", text.strip()))
        # Slurm prints the blanks of a reason as underscores.
        return facts | {"Reason": facts.get("Reason", "").replace("_", " ")}

"""What is tried: each scenario takes a running cluster, and leaves no buffer behind."""

import fcntl
import json
import os
import pathlib
import re
import subprocess
import time

from cluster import REPOSITORY, Cluster, until
from jobs import HOSTILE, MEBIBYTE, contents, directory, gone, is_gone, make, quoted, record, script, state_is, status, submitted


def good_job(cluster: Cluster):
    """Stage-in, two nodes, stage-out; names that a shell would act on; every byte compared."""
    slow = cluster.folder / "slow"
    files = {HOSTILE.replace("/", "_"): os.urandom(3 * MEBIBYTE), "new\nline": b"x", "-rf": b"", "b": os.urandom(5000)}
    source = make(cluster, slow / f"in {HOSTILE}", files)
    number = submitted(cluster, script(
        ["pool=fast capacity=64M", f"stage_in source={quoted(source)} destination={quoted(f'in {HOSTILE}')}",
         f"stage_out source=$BB_JOB_DIR/out destination={quoted(slow / f'out {HOSTILE}')}"],
        """cd "$BB_JOB_DIR"; cp -r in* out; mkdir closed; touch closed/x; chmod 0 closed
srun -N2 sh -c 'hostname > out/node-$SLURM_NODEID'"""), "-N2")
    state_is(cluster, number, "COMPLETED")
    gone(cluster, number)
    made = contents(slow / f"out {HOSTILE}")
    assert sorted(made) == sorted([*files, "node-0", "node-1"]), sorted(made)
    assert all(made[name] == data for name, data in files.items()), "bytes differ"
    assert contents(source) == files, "the source has changed"
    assert not list(cluster.folder.rglob("HACKED")), "a shell has acted on a name"


def wrong_directives(cluster: Cluster):
    """Each is refused at submission, with the key or value that is wrong; so is capacity over the pool, and root."""
    pool = "pool=fast capacity=1M"
    for lines, said in [
        ([pool, "stage_in source=/a destination=b mode=7"], "mode=7: unknown key"),
        ([pool, "stage_inn source=/a destination=b"], "unknown directive"),
        ([pool, "stage_in source=a destination=b"], "source=a: is not an absolute path"),
        ([pool, "stage_in source=/a"], "destination= is missing"),
        ([pool, "stage_in source=/a destination=../b"], "destination=../b: is not a name"),
        ([pool, "stage_out source=/a destination=/b"], "source=/a: is not a name"),
        ([pool, "stage_out source=. destination=/b"], "source=.: is not a name"),
        ([pool, "stage_out source=a source=b destination=/b"], "source= is there twice"),
        ([pool, 'stage_out source="a destination=/b'], "a quote is not closed"),
        ([pool, 'stage_in source="/pool=fast capacity=9T " destination=b'], "capacity= stands beside pool="),
        ([pool, "stage_in\tsource=/a destination=b"], "control characters"),
        ([pool, "drain source=a destination=/b"], "trigger= is missing"),
        ([pool, "drain source=a destination=/b trigger=*.done keep=0"], "keep=0: is not a number"),
        ([pool, "drain source=a destination=/b trigger=*.done bwlimit=$(id)"], "bwlimit=$(id): is not a rate"),
        ([pool, pool], "a job has one pool"),
        (["stage_in source=/a destination=b"], "pool=… capacity=…"),
        (["pool=small capacity=33M"], "capacity=33M: pool small has 33554432 bytes in all"),
        (["pool=fast capacity=1Mi"], "capacity=1Mi: is not a size"),
        # In slurmctld a pattern that goes back over each slash would take minutes.
        ([pool, "stage_in source=/a destination=" + 500_000 * "/" + "x"], "more than 65536 bytes of directives"),
        ([pool, "stage_in \\", *(9_000 * ["source \\"])], "more than 65536 bytes of directives"),
    ]:
        answer = cluster.submit(script(lines, "true"))
        assert answer.startswith("refused") and said in answer, f"{lines}: {answer}"
    answer = cluster.submit(script(["pool=nothing capacity=1M"], "true"))
    assert "Burst Buffer request invalid" in answer, answer
    (cluster.folder / "root.sh").write_text(script([pool], "true"))
    assert "permission" in (answer := cluster.command("sbatch", f"{cluster.folder}/root.sh").lower()), answer


def failing_stage_in(cluster: Cluster):
    """The job stays pending with the reason, nothing is held, and `scontrol release` begins again."""
    source = cluster.folder / "slow/late"
    number = submitted(cluster, script(["pool=fast capacity=2M", f"stage_in source={source} destination=in",
                                        f"stage_out source=in destination={cluster.folder}/slow/late-out"], "true"))
    job = until(lambda: (job := cluster.job(number)).get("Priority") == "0" and job, "a job that is held")
    assert job["JobState"] == "PENDING" and f"{source}: is not there" in job["Reason"], job
    gone(cluster, number)
    make(cluster, source, {"a": b"here now"})
    # Slurm tells the end of a teardown by this state only; a job that is released before would wait for good.
    until(lambda: "complete" in cluster.job(number).get("BurstBufferState", "complete"), "the end of the teardown")
    cluster.command("scontrol", "release", number)
    state_is(cluster, number, "COMPLETED")
    gone(cluster, number)
    assert contents(cluster.folder / "slow/late-out") == {"a": b"here now"}


def others_files(cluster: Cluster):
    """What the job's user may not read is not staged in, where the user may not write nothing is staged out, and a link helps neither."""
    private = cluster.folder / "private"
    private.mkdir(mode=0o700)
    (private / "secret").write_bytes(b"secret")
    link = cluster.folder / "slow/link"
    link.symlink_to(private / "secret")
    for source in (private / "secret", link / "..", link):
        # A link is not followed at all.
        why = "a symbolic link" if source == link else "ermission denied"
        number = submitted(cluster, script(["pool=fast capacity=1M", f"stage_in source={source} destination=in"], "cat $BB_JOB_DIR/in"))
        job = until(lambda: (job := cluster.job(number)).get("Priority") == "0" and job, "a job that is held")
        assert job["JobState"] == "PENDING" and why in job["Reason"], job
        gone(cluster, number)
        cluster.command("scancel", number)
    number = submitted(cluster, script(["pool=fast capacity=1M", f"stage_out source=out destination={private}/out"], "echo mine > $BB_JOB_DIR/out"))
    kept(cluster, number, "ermission denied")
    assert [path.name for path in private.iterdir()] == ["secret"]


def kept(cluster: Cluster, number: str, why: str, opened=lambda: None):
    """A stage-out has failed: the reason is told, and the data stays until its user has moved it."""
    try:
        until(lambda: why in cluster.job(number).get("Reason", ""), f"the reason {why}")
    except AssertionError as error:
        raise AssertionError(f"{error}; {cluster.job(number)}") from None
    out = directory(cluster, number) / "out"
    until(lambda: not cluster.job(number).get("BurstBufferState", "complete").startswith(("staging", "teardown")), "the last attempt of teardown")
    assert out.exists(), "what was not durable has been deleted"
    assert "failed" in status(cluster, number), status(cluster, number)
    opened()
    cluster.command("mv", str(out), f"{cluster.folder}/slow/rescued-{number}", user=True)
    assert not status(cluster, number)
    gone(cluster, number)
    assert (cluster.folder / f"slow/rescued-{number}").exists()


def failing_stage_out(cluster: Cluster):
    """A destination that is there with other bytes is never overwritten."""
    taken = cluster.folder / "slow/taken"
    taken.write_bytes(b"another's")
    number = submitted(cluster, script(["pool=fast capacity=1M", f"stage_out source=out destination={taken}"], "echo mine > $BB_JOB_DIR/out"))
    kept(cluster, number, str(taken))
    assert taken.read_bytes() == b"another's"


def destination_in_memory(cluster: Cluster):
    """Nothing is staged out to memory: it would not be durable."""
    number = submitted(cluster, script(["pool=fast capacity=1M", f"stage_out source=out destination=/dev/shm/{cluster.folder.name}"],
                                       "echo mine > $BB_JOB_DIR/out"))
    kept(cluster, number, "is in memory")


def under_way(cluster: Cluster, number: str, phase: str):
    """A stage whose bytes are being moved, and have not all been verified."""
    def found():
        bytes_of = re.search(rf"{phase}: (\d+) of (\d+) bytes verified", status(cluster, number))
        return bytes_of and int(bytes_of[1]) < int(bytes_of[2])
    until(found, f"job {number} {phase}, with bytes to be moved")


def requeued(cluster: Cluster):
    """The results of the first run are staged out, the second one begins from its input; its results, which would replace others, are kept."""
    slow = cluster.folder / "slow"
    source = make(cluster, slow / "requeue-in", {"run": b"0"})
    number = submitted(cluster, script(
        ["pool=fast capacity=1M", f"stage_in source={source} destination=out", f"stage_out source=out destination={slow}/requeue-out"],
        f"""cat "$BB_JOB_DIR/out/run" >> {slow}/began; echo "run ${{SLURM_RESTART_COUNT:-1}}" > "$BB_JOB_DIR/out/run"
[ "${{SLURM_RESTART_COUNT:-0}}" != 0 ] || {{ touch {slow}/requeue-me; sleep 300; }}"""))
    until((slow / "requeue-me").exists, "the first run")
    cluster.command("scontrol", "requeue", number)
    gone(cluster, number)
    assert contents(slow / "requeue-out") == {"run": b"run 1\n"}
    # Slurm lets a requeued job wait for two minutes.
    cluster.command("scontrol", "update", f"JobId={number}", "StartTime=now")
    kept(cluster, number, "requeue-out: ")
    assert (slow / "began").read_bytes() == b"00" and contents(slow / "requeue-out") == {"run": b"run 1\n"}


def slow_source(cluster: Cluster, name: str) -> pathlib.Path:
    return make(cluster, cluster.folder / "slow" / name, {f"{number}": os.urandom(MEBIBYTE) for number in range(6)})


def cancelled_in_each_phase(cluster: Cluster):
    """While it waits for room, is staged in, waits for nodes, runs and is staged out: what was promised is kept, and nothing is left."""
    slow = cluster.folder / "slow"
    source = slow_source(cluster, "cancel-in")
    holder = submitted(cluster, script(["pool=small capacity=32M"], "sleep 300"))
    state_is(cluster, holder, "RUNNING")
    waiting = submitted(cluster, script(["pool=small capacity=32M"], "true"))
    until(lambda: "BurstBuffer" in cluster.job(waiting)["Reason"], "a job that waits for room")
    cluster.command("scancel", waiting)
    state_is(cluster, waiting, "CANCELLED")
    cluster.set("bwlimit", "1MB/s")
    staging = submitted(cluster, script(["pool=fast capacity=8M", f"stage_in source={source} destination=in"], "true"))
    under_way(cluster, staging, "staging in")
    cluster.command("scancel", staging)
    state_is(cluster, staging, "CANCELLED")
    gone(cluster, staging)
    cluster.set("bwlimit", None)
    cluster.command("scancel", holder)
    state_is(cluster, holder, "CANCELLED")
    gone(cluster, holder, "small")
    nodes = submitted(cluster, "#!/bin/bash\nsleep 300\n", "-N2", "--exclusive")
    state_is(cluster, nodes, "RUNNING")
    staged = submitted(cluster, script(["pool=fast capacity=8M", f"stage_in source={source} destination=in"], "true"), "-N2")
    until(lambda: cluster.job(staged).get("BurstBufferState") == "staged-in", "a job that waits for nodes")
    assert contents(directory(cluster, staged) / "in") == contents(source)
    cluster.command("scancel", staged, nodes)
    state_is(cluster, staged, "CANCELLED")
    gone(cluster, staged)
    running = submitted(cluster, script(["pool=fast capacity=8M", f"stage_out source=out destination={slow}/cancelled"],
                                        f"echo half > $BB_JOB_DIR/out; touch {slow}/is-running; sleep 300"))
    until((slow / "is-running").exists, "a job that runs")
    cluster.command("scancel", running)
    state_is(cluster, running, "CANCELLED")
    gone(cluster, running)
    assert (slow / "cancelled").read_bytes() == b"half\n", "a cancelled job's results are staged out"


def hurried_teardown(cluster: Cluster):
    """`scancel --hurry` while it is staged out deletes what is not durable; without it, the stage-out is finished."""
    slow, source = cluster.folder / "slow", slow_source(cluster, "hurry-in")
    for flag, is_there in (("--hurry", False), ("--quiet", True)):
        cluster.set("bwlimit", None)
        number = submitted(cluster, script(["pool=fast capacity=8M", f"stage_in source={source} destination=out",
                                            f"stage_out source=out destination={slow}/hurry{flag}"], f"while [ ! -e {slow}/go{flag} ]; do sleep 0.1; done"))
        state_is(cluster, number, "RUNNING")
        cluster.set("bwlimit", "1MB/s")
        (slow / f"go{flag}").touch()
        under_way(cluster, number, "staging out")
        cluster.command("scancel", flag, number)
        gone(cluster, number)
        assert (slow / f"hurry{flag}").exists() == is_there
    cluster.set("bwlimit", None)
    assert contents(slow / "hurry--quiet") == contents(source)


def controller_killed(cluster: Cluster):
    """kill -9 of slurmctld in the middle of data_in and of data_out."""
    slow, source = cluster.folder / "slow", slow_source(cluster, "killed-in")
    # Longer than slurmctld takes to write down what there is, a second buffer's life included: see `saved`.
    cluster.set("bwlimit", "50kB/s")
    number = submitted(cluster, script(["pool=fast capacity=8M", f"stage_in source={source} destination=out",
                                        f"stage_out source=out destination={slow}/killed-out"], f"while [ ! -e {slow}/go ]; do sleep 0.1; done"))
    under_way(cluster, number, "staging in")
    saved(cluster, number)
    cluster.kill_controller()
    under_way_by_itself(cluster, number)
    cluster.set("bwlimit", None)
    cluster.begin_controller()
    # Slurm removes the buffer, and begins the job again after a minute.
    until(lambda: is_gone(cluster, number), "the end of the buffer that was half filled")
    cluster.command("scontrol", "update", f"JobId={number}", "StartTime=now")
    state_is(cluster, number, "RUNNING")
    cluster.set("bwlimit", "400kB/s")
    (slow / "go").touch()
    under_way(cluster, number, "staging out")
    saved(cluster, number)
    cluster.kill_controller()
    under_way_by_itself(cluster, number)
    cluster.begin_controller()
    gone(cluster, number)
    cluster.set("bwlimit", None)
    assert contents(slow / "killed-out") == contents(source)


def under_way_by_itself(cluster: Cluster, number: str):
    """What moves the bytes does not need slurmctld."""
    process = int((cluster.folder / f"state/journals/{number}/server.pid").read_text())
    assert pathlib.Path(f"/proc/{process}/exe").exists(), "the job's server has ended with slurmctld"


def saved(cluster: Cluster, number: str):
    """Waits until slurmctld has written down how a job stands, and that it has a buffer, as it does every 30 s: else it does not know after kill -9.

    It compares whole seconds: a buffer that comes within the second of a writing is written when another one comes. So here one does.
    """
    state, jobs, mark = cluster.folder / "run/state/burst_buffer_lua_state", cluster.folder / "run/state/job_state", f"mark-{time.monotonic_ns()}"
    # All jobs are written at once: a later one tells it of this one.
    later = submitted(cluster, "#!/bin/bash\n", "--hold", f"--job-name={mark}")
    # A name in it: its length with the zero at its end, and its bytes.
    name = (len(number) + 1).to_bytes(4, "big") + number.encode() + b"\0"

    def is_known():
        return state.exists() and name in state.read_bytes()

    if not is_known():
        time.sleep(1)
        other = submitted(cluster, script(["pool=small capacity=1M"], "true"))
        until(is_known, "the state of slurmctld's buffers")
        state_is(cluster, other, "COMPLETED")
        gone(cluster, other, "small")
    until(lambda: jobs.exists() and mark.encode() in jobs.read_bytes(), "the state of slurmctld's jobs")
    cluster.command("scancel", later)


def killed_server(cluster: Cluster):
    """kill -9 of the job's server in the middle of data_in: another goes on from its journal."""
    source = slow_source(cluster, "server-in")
    cluster.set("bwlimit", "1MB/s")
    number = submitted(cluster, script(["pool=fast capacity=8M", f"stage_in source={source} destination=out",
                                        f"stage_out source=out destination={cluster.folder}/slow/server-out"], "true"))
    under_way(cluster, number, "staging in")
    process = int((cluster.folder / f"state/journals/{number}/server.pid").read_text())
    cluster.set("bwlimit", None)
    os.killpg(process, 9)
    state_is(cluster, number, "COMPLETED")
    gone(cluster, number)
    assert contents(cluster.folder / "slow/server-out") == contents(source)


def full_pool(cluster: Cluster):
    """A job that fills its pool; the next one waits for its room, and has it."""
    go = cluster.folder / "slow/full-go"
    first = submitted(cluster, script(["pool=small capacity=32M", f"stage_out source=out destination={cluster.folder}/slow/full-out"],
                                      f"head -c {32 * MEBIBYTE} /dev/zero > $BB_JOB_DIR/out; while [ ! -e {go} ]; do sleep 0.1; done"))
    state_is(cluster, first, "RUNNING")
    second = submitted(cluster, script(["pool=small capacity=1M"], "echo $BB_JOB_DIR > $BB_JOB_DIR/x"))
    until(lambda: "BurstBuffer" in cluster.job(second)["Reason"], "a job that waits for room")
    go.touch()
    state_is(cluster, first, "COMPLETED")
    gone(cluster, first, "small")
    assert (cluster.folder / "slow/full-out").stat().st_size == 32 * MEBIBYTE
    state_is(cluster, second, "COMPLETED")
    gone(cluster, second, "small")


def drain(cluster: Cluster):
    """What triggers vouch for is moved while the job runs, what they vouch for at its end is moved after it, and nothing else."""
    slow = cluster.folder / "slow"
    (slow / "run").mkdir()
    os.chown(slow / "run", cluster.uid, cluster.gid)
    number = submitted(cluster, script(
        ["pool=fast capacity=16M", f"drain source=ckpt destination={slow}/run trigger=*.done keep=1 bwlimit=100MB/s"],
        f"""cd "$BB_JOB_DIR/ckpt"
for step in 1 2 3; do
    mkdir step-$step; head -c {MEBIBYTE} /dev/urandom > step-$step/data; cp step-$step/data {slow}/expected-$step
    touch .new; mv .new step-$step.done
    [ $step != 1 ] || while [ ! -e {slow}/run/step-1 ]; do sleep 0.1; done
done
echo half > step-4"""))
    state_is(cluster, number, "COMPLETED")
    gone(cluster, number)
    assert sorted(path.name for path in (slow / "run").iterdir()) == ["step-1", "step-2", "step-3"]
    for step in (1, 2, 3):
        assert (slow / f"run/step-{step}/data").read_bytes() == (slow / f"expected-{step}").read_bytes()


def failing_drain(cluster: Cluster):
    """What a trigger vouches for and cannot be moved is not deleted."""
    slow = cluster.folder / "slow"
    (slow / "drained").mkdir()
    (slow / "drained/out").write_bytes(b"another's")
    number = submitted(cluster, script(["pool=fast capacity=16M", f"drain source=out destination={slow}/drained trigger=*.done"],
                                       "cd $BB_JOB_DIR/out; echo mine > out; touch out.done"))
    kept(cluster, number, "drain out")
    missing = slow / "missing"
    number = submitted(cluster, script(["pool=fast capacity=1M", f"drain source=out destination={missing} trigger=*.done"], "true"))
    until(lambda: f"{missing}: is not there" in cluster.job(number)["Reason"], "the reason, before the job starts")
    gone(cluster, number)
    cluster.command("scancel", number)


def renewed_reservation(cluster: Cluster):
    """A reservation lasts a day; it is renewed as long as the job has a buffer."""
    number = submitted(cluster, script(["pool=fast capacity=16M"], "sleep 300"))
    state_is(cluster, number, "RUNNING")
    renew = record(cluster, number).with_suffix(".renew")
    ledger = next((cluster.folder / "ledger").glob(f"{cluster.uid}*"))
    before, two_hours_ago = ledger.read_bytes(), renew.stat().st_mtime - 7200
    os.utime(renew, (two_hours_ago, two_hours_ago))
    until(lambda: renew.stat().st_mtime > two_hours_ago + 3600 and ledger.read_bytes() != before, "the renewal of the reservation")
    cluster.command("scancel", number)
    gone(cluster, number)


def left_by_teardown(cluster: Cluster):
    """What a teardown that slurmctld has killed leaves goes by itself, but not what is not durable. It is put there again here: kills come by chance."""
    number = submitted(cluster, script(["pool=fast capacity=16M"], "sleep 300"))
    state_is(cluster, number, "RUNNING")
    text = record(cluster, number).read_text()
    cluster.command("scancel", number)
    gone(cluster, number)
    job = {**json.loads(text), "stage_out": [{"source": "out", "destination": "/nowhere"}]}
    del job["reservation"]
    journal = make(cluster, cluster.folder / f"state/journals/{number}", {})
    said = cluster.command(cluster.binary, "stage", "pools", "reserve", "fast", f"job-{number}", "--size", "16M",
                           "--config", f"{cluster.folder}/conf/pools.toml", "--state", str(journal), user=True)
    assert "reservation" in said, said
    result = directory(cluster, number) / "out"
    result.write_bytes(b"not durable")
    record(cluster, number).write_text(json.dumps(job))
    until(lambda: '"kept"' in record(cluster, number).read_text(), f"the clearing away of job {number}")
    assert result.read_bytes() == b"not durable"
    result.unlink()
    gone(cluster, number)


def example(cluster: Cluster):
    """examples/slurm/burst-buffer.sh: signalled before its time limit, it writes a last checkpoint; a job that needs its results waits for them."""
    home = cluster.folder / "slow/example"
    make(cluster, home, {})
    make(cluster, home / "run", {})
    make(cluster, home / "mesh", {"points": os.urandom(5000)})
    solver = cluster.folder / "jobs/solver"
    solver.write_text("""#!/bin/bash
[ "$SLURM_PROCID" = 0 ] || exit 0
last() { echo last > checkpoints/ckpt-9; touch checkpoints/.new; mv checkpoints/.new checkpoints/ckpt-9.done; cp -r "$2" results; exit 0; }
trap 'last "$@"' TERM
while :; do sleep 0.1; done
""")
    solver.chmod(0o755)
    text = (REPOSITORY / "examples/slurm/burst-buffer.sh").read_text().replace("/lustre/me", str(home)).replace("scratch capacity=500G", "fast capacity=1M")
    # Slurm looks every half minute whether a job's time is near.
    number = submitted(cluster, text, "--time=2", "--signal=TERM@110")
    after = submitted(cluster, f"#!/bin/bash\ncat {home}/results/points > {home}/analysed\n", f"--dependency=afterburstbuffer:{number}")
    until(lambda: is_gone(cluster, number) and cluster.job(number)["JobState"] == "COMPLETED", f"the end of job {number}")
    assert (home / "run/ckpt-9").read_bytes() == b"last\n"
    state_is(cluster, after, "COMPLETED")
    assert (home / "analysed").read_bytes() == (home / "mesh/points").read_bytes()


def cancelled_in_setup(cluster: Cluster):
    """scancel while setup waits: nothing is left of what it had begun."""
    gate = cluster.folder / "gate"
    gate.touch()
    pause = cluster.folder / "pause"
    pause.write_text(f'#!/bin/sh\nwhile [ -e {gate} ]; do sleep 0.05; done\nexec "$@"\n')
    pause.chmod(0o755)
    cluster.set("become", f"{pause} setpriv --reuid=%u --regid=%g --init-groups --")
    number = submitted(cluster, script(["pool=fast capacity=8M"], "true"))
    until(lambda: record(cluster, number).exists() and "setting up" in record(cluster, number).read_text(), "a job that is set up")
    cluster.command("scancel", number)
    state_is(cluster, number, "CANCELLED")
    gate.unlink()
    gone(cluster, number)
    cluster.set("become", "setpriv --reuid=%u --regid=%g --init-groups --")


def taken_journal(cluster: Cluster):
    """What another user has put in the place of a job's journal is not used, a link to a directory of the job's user included."""
    lure = make(cluster, cluster.folder / "slow/lure", {})
    for put in (lambda path: path.mkdir(), lambda path: path.symlink_to(lure)):
        number = submitted(cluster, script(["pool=fast capacity=1M"], "true"), "--hold")
        journal = cluster.folder / f"state/journals/{number}"
        put(journal)
        cluster.command("scontrol", "release", number)
        job = until(lambda: "belongs to another user" in (job := cluster.job(number))["Reason"] and job, "the reason")
        assert job["JobState"] == "PENDING" and not list(lure.iterdir()), job
        until(lambda: not record(cluster, number).exists(), "the end of the buffer")
        cluster.command("scancel", number)


def writers_side_by_side(cluster: Cluster):
    """Files of state that many calls replace at once are whole at any time, and no call fails; an error is a reason, never "(null)"."""
    commands, path = REPOSITORY / "contrib/slurm/flashwright/commands.lua", cluster.folder / "state/records/shared.json"
    write = f"""local commands = assert(loadfile("{commands}"))({{}}, "")
    for number = 1, 300 do
        commands.write_file("{path}", arg[1]:rep(9000))
        local text = commands.read_file("{path}")
        assert(text == text:sub(1, 1):rep(9000), "torn")
    end"""
    writers = [subprocess.Popen(["lua", "-", letter], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for letter in "abcd"]
    said = [writer.communicate(write)[1] for writer in writers]
    assert all(writer.returncode == 0 for writer in writers), said
    assert [one.name for one in path.parent.glob("shared.json*")] == ["shared.json"]
    path.unlink()
    request = cluster.folder / "state/request"
    request.write_text("#!/bin/sh\n#BB_LUA pool=fast capacity=1M\n")
    script = f"""slurm = {{ ERROR = -1, SUCCESS = 0, log_error = function() end }}
    dofile("{cluster.folder}/conf/burst_buffer.lua")
    print(slurm_bb_setup("not a number", 0, 0, "fast", 1, "{request}"))"""
    answer = subprocess.run(["lua", "-"], input=script, capture_output=True, text=True)
    assert answer.returncode == 0 and re.match(r"-1\t.*a job has a number", answer.stdout), answer


def processes_of_a_job(cluster: Cluster):
    """as-user.sh by itself: one process of a name, none after the end, one caller at a time, and no process that has got another's number is ended."""
    journal = cluster.folder / "state/journals/0"
    helper = (REPOSITORY / "contrib/slurm/flashwright/as-user.sh").read_text()
    environment = {"PATH": "/usr/bin:/bin", "FLASHWRIGHT_STAGE_SOCKET": f"{journal}/stage.sock"}
    rights = {"user": cluster.uid, "group": cluster.gid, "extra_groups": []}

    def call(*words, before=()):
        return subprocess.run([*before, "bash", "-c", helper, "bash", words[0], journal, *words[1:]], env=environment, capture_output=True, text=True, **rights)

    def process(name):
        return int((journal / f"{name}.pid").read_text())

    assert call("open").returncode == 0
    # The caller's process group is killed at once, as Slurm does it.
    assert call("begin", "mine", "sleep", "1000", before=("setsid", "bash", "-c", '"$@"; code=$?; kill -KILL -- -$$; exit $code', "bash")).returncode in (0, -9)
    mine = process("mine")
    assert call("begin", "mine", "sleep", "1000").returncode == 0 and process("mine") == mine, "two processes of one name"
    assert call("code", "mine").stdout == "", "the process has ended"
    with subprocess.Popen(["sleep", "1000"], env={"PATH": "/usr/bin:/bin"}, start_new_session=True, **rights) as other:
        (journal / "other.pid").write_text(str(other.pid))
        assert call("finish", "other").returncode == 0
        assert other.poll() is None, "another's process has been ended"
        other.kill()
    with open(journal / "processes.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert call("begin", "second", "sleep", "1000", before=("timeout", "1")).returncode == 124 and not (journal / "second.pid").exists()
    assert call("end").returncode == 0
    assert not pathlib.Path(f"/proc/{mine}/exe").exists(), "a process is left"
    refused = call("begin", "third", "sleep", "1000")
    assert refused.returncode != 0 and "is being removed" in refused.stderr and not (journal / "third.pid").exists(), refused
    assert call("remove", "/nonexistent").returncode == 0 and not journal.exists()


def closed_directories(cluster: Cluster):
    """as-user.sh by itself: what a job has closed to itself cannot be seen, and counts as there; and a job that does so keeps its data."""
    helper = (REPOSITORY / "contrib/slurm/flashwright/as-user.sh").read_text()
    rights = {"user": cluster.uid, "group": cluster.gid, "extra_groups": []}
    buffer = make(cluster, cluster.folder / "slow/closed", {})
    out, drained = (make(cluster, buffer / name, {"result": b"x"}) for name in ("out", "drained"))
    names = [str(out), f"{drained}/", str(buffer / "never"), f"{buffer}/never/"]

    def remains():
        done = subprocess.run(["bash", "-c", helper, "bash", "remains", "/nonexistent", *names], capture_output=True, text=True, **rights)
        return set(done.stdout.split())

    both = {str(out), str(drained)}
    assert remains() == both
    for mode in (0, 0o300, 0o400):
        drained.chmod(mode)
        assert remains() == both, oct(mode)
    for mode in (0, 0o600):
        buffer.chmod(mode)
        assert both <= remains(), oct(mode)
    buffer.chmod(0o700)
    drained.chmod(0o700)
    (drained / "result").unlink()
    assert remains() == {str(out)}

    number = submitted(cluster, script(["pool=fast capacity=16M", f"stage_out source=out destination={cluster.folder}/slow/closed-out"],
                                       "echo mine > $BB_JOB_DIR/out; chmod 0 $BB_JOB_DIR"))
    kept(cluster, number, "ermission denied", lambda: directory(cluster, number).chmod(0o700))


# Those that change no setting and leave slurmctld alone, all at once; then the others, one after another.
BESIDE = [example, good_job, wrong_directives, failing_stage_in, others_files, failing_stage_out, destination_in_memory, requeued, full_pool, drain, failing_drain, renewed_reservation, taken_journal,
          left_by_teardown, writers_side_by_side, processes_of_a_job, closed_directories]
ALONE = [cancelled_in_setup, cancelled_in_each_phase, hurried_teardown, killed_server, controller_killed]

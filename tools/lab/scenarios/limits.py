"""Three planted limits are named, and a healthy system draws no false verdict.

What the DASH papers found by hand: a layer with a ceiling of its own (their RAID controller's processor), and
interrupts that all come to one processor; and beside them one drive that is slower than its peers.
"""

from guest import DRIVES

IOPS = 250
SLOW = 60
WIDTH = 4
LAYER = 200  # requests a second that the array lets through; its drives do five times as many
HEALTHY = {"drives", "unknown"}
ATTEMPTS = 6  # at keeping one CPU busy on a host that others use
LOAD = {"rw": "randread", "bs": "4k", "runtime": "2s", "ramp_time": "500ms", "size": "32m"}


def run(lab):
    healthy(lab)
    slow_member(lab)
    layer_with_a_ceiling(lab)
    interrupts_on_one_cpu(lab)


def verdict(lab, target, prefix="", **options):
    words = " ".join(f"--{name}={value}" for name, value in {**LOAD, **options}.items())
    answer = lab.guest.run(f"{prefix} flashwright bench --allow-unwritten {words} --target '{target}' --json")
    lab.must(answer)
    record = answer.json["record"]
    return record["verdict"]


def said(verdict):
    return f"{verdict['limit']}: {verdict['evidence']}"


def healthy(lab):
    lab.guest.limit(iops=IOPS)
    for target in ("/dev/nvme0n1", f"stripe(chunk=64k):{lab.drives(WIDTH)}", f"separate:{lab.drives(WIDTH)}"):
        found = verdict(lab, target, iodepth=16 * (1 if target.startswith("/") else WIDTH))
        lab.check(f"healthy drives draw no other verdict than themselves: {target}", found["limit"] in HEALTHY, said(found))
    with lab.layout(f"md-raid0(chunk=64k):{lab.drives(WIDTH)}") as built:
        found = verdict(lab, built["device_spec"], iodepth=16 * WIDTH)
    lab.check("a healthy array draws no other verdict than its drives", found["limit"] in HEALTHY, said(found))


def slow_member(lab):
    lab.guest.limit([2], iops=SLOW)
    for name, spec in (("stripe", f"stripe(chunk=64k):{lab.drives(WIDTH)}"), ("array", None)):
        if spec:
            found = verdict(lab, spec, iodepth=16 * WIDTH)
        else:
            with lab.layout(f"md-raid0(chunk=64k):{lab.drives(WIDTH)}") as built:
                found = verdict(lab, built["device_spec"], iodepth=16 * WIDTH)
        lab.check(f"one slow drive of a {name} is found: unbalanced-drives", found["limit"] == "unbalanced-drives", said(found))
        lab.check(f"the slow drive of the {name} is named", "nvme2n1" in found["evidence"], found["evidence"])
    lab.guest.limit(iops=IOPS)


def layer_with_a_ceiling(lab):
    """A control group allows the array a fifth of what its drives do; the drives themselves are free."""
    points = layered(lab, "/state/healthy-layer", "")
    lab.check("a healthy array beside its drives one by one draws no other verdict than its drives",
              all(point["verdict"]["limit"] in HEALTHY for point in points.values()),
              "; ".join(said(point["verdict"]) for point in points.values()))
    watch = f"""
        mkdir -p /sys/fs/cgroup/lab
        (while [ -d /sys/fs/cgroup/lab ]; do
            for array in /sys/block/md*; do echo "$(cat $array/dev) riops={LAYER}" > /sys/fs/cgroup/lab/io.max; done 2> /dev/null
            sleep 0.1
        done) > /dev/null 2>&1 &
        echo $$ > /sys/fs/cgroup/lab/cgroup.procs"""
    try:
        points = layered(lab, "/state/slow-layer", watch)
    finally:
        if lab.guest.process is not None:
            lab.guest.run("sleep 1; rmdir /sys/fs/cgroup/lab")
    array = points["md-raid0"]["verdict"]
    lab.check("an array with a ceiling of its own is found: raid-layer", array["limit"] == "raid-layer", said(array))
    lab.check("its drives one by one draw no other verdict than themselves", points["separate"]["verdict"]["limit"] in HEALTHY, said(points["separate"]["verdict"]))


def layered(lab, results, before):
    """Sweeps the drives separately and joined; the points by layout."""
    answer = lab.guest.run(f"{before}\nflashwright sweep run /payload/spaces/layer.toml --output {results} --json", timeout=400)
    lab.must(answer)
    return {point["settings"]["layout"]: point for point in answer.json["points"]}


def interrupts_on_one_cpu(lab):
    """A drive with one pair of queues has one interrupt for all CPUs, and the kernel keeps it from those that are isolated."""
    # Not by the old interrupt lines (pci=nomsi), which all drives share: they are triggered by level, and with one that stays
    # asserted a CPU does nothing but serve it (a soft lockup that outlasts every time-out).
    lab.boot(arguments="isolcpus=managed_irq,1", queue_pairs=1)
    lab.guest.limit(iops=0)
    lab.sh("for drive in /sys/block/nvme*; do echo 0 > $drive/queue/rq_affinity; done")
    # The submissions come to it as well, and so many that it never waits for a drive.
    # Where the host gives the emulator's own thread, which is the drives, too little, the CPU in here waits for it and
    # is not the limit; then there is nothing to be found, or the drives are, and no other name must be given.
    for _ in range(ATTEMPTS):
        found = verdict(lab, f"stripe(chunk=64k):{lab.drives(DRIVES)}", prefix="taskset 1", iodepth=128, numjobs=4)
        if found["limit"] not in HEALTHY:
            break
    lab.check("all interrupts on one CPU are found: one-cpu", found["limit"] == "one-cpu", said(found))
    lab.spoilt = True

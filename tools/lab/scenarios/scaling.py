"""4 KiB random reads over 1 to 16 drives: separate, in stripes and in volumes they add up, and md keeps pace."""

IOPS = 250  # of a drive; sixteen make what the emulated machine does with ease
CHUNK = "64k"
# Requests in flight for each drive. Requests come to drives at random; by the theory of closed queues
# a drive has none for 1 / (1 + depth) of the time, which costs 3 % here.
DEPTH = 32
SCALES = 0.9
MD_WITHIN = 0.1


def run(lab):
    lab.guest.limit(iops=IOPS)
    one = rate(lab, "/dev/nvme0n1", 1)
    lab.require("one drive gives what it is throttled to", 0.85 * IOPS <= one <= 1.15 * IOPS, f"{one:.0f} IOPS of {IOPS}")
    for width in (1, 2, 4, 8, 16):
        separate = rate(lab, f"separate:{lab.drives(width)}", width)
        scales(lab, "separate", width, separate, one)
        scales(lab, "striped in user space", width, rate(lab, f"stripe(chunk={CHUNK}):{lab.drives(width)}", width), one)
        with lab.volume(width, CHUNK) as spec:
            volume = rate(lab, spec, width)
        scales(lab, "in a labelled volume", width, volume, one)
        with lab.layout(f"md-raid0(chunk={CHUNK}):{lab.drives(width)}") as built:
            md = rate(lab, built["device_spec"], width)
        lab.check(f"md RAID-0 over {width} is within {MD_WITHIN:.0%} of the drives separately", abs(md / separate - 1) <= MD_WITHIN,
                  f"{md:.0f} against {separate:.0f} IOPS")
        lab.check(f"the volume over {width} gives at least what md does, within {MD_WITHIN:.0%}", volume >= (1 - MD_WITHIN) * md,
                  f"{volume:.0f} against {md:.0f} IOPS")


def rate(lab, target, width):
    return lab.bench(target, rw="randread", bs="4k", iodepth=DEPTH * width, runtime="1500ms", ramp_time="500ms")["iops"]


def scales(lab, what, width, iops, one):
    lab.check(f"{what}, {width} drives give at least {SCALES} × {width} times one", iops >= SCALES * width * one, f"{iops / one:.2f} times")

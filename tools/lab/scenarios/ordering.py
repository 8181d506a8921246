"""Chunk and read-ahead order sequential bandwidth as they must, and leave small random reads alone.

Where a drive has so many requests a second and no more, large requests are the faster the fewer pieces
they are cut into; where it has so many bytes a second, a stream is the faster the more drives it reads
ahead on. Both follow from the throttle alone, which is set so low that nothing else counts.
"""

WIDTH = 8
IOPS = 100
BYTES_PER_S = 4 << 20
CHUNKS = ["16k", "64k", "256k"]
READ_AHEAD_KB = [0, 2048]  # off, and 32 chunks; what lies between may do as well
FASTER = 1.2  # what a step must bring at least; four times is what it should
SAME = 0.1


def run(lab):
    large, small = {}, {}
    lab.guest.limit(range(WIDTH), iops=IOPS)
    for chunk in CHUNKS:
        # Without merging, each piece is a request of its own.
        with lab.layout(f"md-raid0(chunk={chunk},nomerges=2):{lab.drives(WIDTH)}") as built:
            target = built["device_spec"]
            large[chunk] = lab.bench(target, rw="read", bs="1m", iodepth=8, runtime="1500ms", ramp_time="500ms")["bandwidth_bytes_per_s"]
            small[chunk] = lab.bench(target, rw="randread", bs="4k", iodepth=32 * WIDTH, runtime="1500ms", ramp_time="500ms")["iops"]
    rises(lab, "sequential 1 MiB reads rise with the chunk", large)
    lab.check("the chunk makes no difference to 4 KiB random reads", max(small.values()) <= (1 + SAME) * min(small.values()),
              ", ".join(f"{chunk} {iops:.0f} IOPS" for chunk, iops in small.items()))

    streams = {}
    lab.guest.limit(range(WIDTH), bytes_per_s=BYTES_PER_S)
    for kilobytes in READ_AHEAD_KB:
        with lab.layout(f"md-raid0(chunk=64k,read_ahead_kb={kilobytes}):{lab.drives(WIDTH)}") as built:
            lab.sh("echo 3 > /proc/sys/vm/drop_caches")
            document = lab.bench(built["device_spec"], rw="read", bs="64k", iodepth=1, direct=0, ioengine="psync", runtime="2s", ramp_time="1s")
            streams[f"{kilobytes} KiB"] = document["bandwidth_bytes_per_s"]
    rises(lab, "a buffered stream rises with read-ahead", streams)


def rises(lab, sentence, figures):
    values = list(figures.values())
    lab.check(sentence, all(b >= FASTER * a for a, b in zip(values, values[1:])), ", ".join(f"{name} {value / 1e6:.1f} MB/s" for name, value in figures.items()))

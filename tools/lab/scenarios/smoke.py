"""The guest is what it claims to be, and the program runs in it."""

from guest import DRIVES


def run(lab):
    answer = lab.flashwright("probe", "--json")
    lab.must(answer)
    names = {drive["name"] for drive in answer.json["drives"]}
    lab.require("probe finds the sixteen NVMe drives", {f"nvme{index}n1" for index in range(DRIVES)} <= names, ", ".join(sorted(names)))
    lab.guest.limit(iops=250)
    document = lab.bench("/dev/nvme0n1", rw="randread", bs="4k", iodepth=8, runtime="2s", ramp_time="300ms")
    lab.check("a drive throttled to 250 requests a second gives about that", 200 <= document["iops"] <= 300, f"{document['iops']:.0f} IOPS")
    lab.check("no request took less than no time", document["latency_ns"]["min"] > 0)

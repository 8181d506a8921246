"""NVMe namespaces whose blocks have metadata: protection information made and checked by the controller, and by the program.

The drive checks tags by itself as well, by qemu's own code: what passes is right for both. Formats with metadata behind the data
of each block and in a buffer of its own, with guards of 16 and of 64 bits, of types 1 to 3. What changes, on the drive or
by another application, is found; what nothing was said of is refused, and not written.
"""

from lab import drive
from scenarios.commands import character

BOOTS = True
# By drive: what it is, how qemu formats its metadata, bytes of a block as pi_act=0 and as pi_act=1 have it, its type of protection.
# The data of a block are 4096 bytes: of smaller ones qemu takes some for written that share a page of its file with others.
FORMATS = [
    ("64 bytes behind each block", "ms=64,mset=1,pi=1,pil=0", 4160, 4160, 1),
    ("64 bytes beside, tags first", "ms=64,mset=0,pi=1,pil=1", 4096, 4096, 1),
    ("8 bytes behind each block, of type 3", "ms=8,mset=1,pi=3,pil=1", 4104, 4096, 3),
    ("guards of 64 bits beside, of type 2", "ms=16,mset=0,pi=2,pif=2", 4096, 4096, 2),
]
PLAIN = len(FORMATS)  # metadata without protection information
DATA = 4096
COUNT = 96  # blocks that a job moves
GLOBAL = """
[global]
ioengine=io_uring_cmd
filename={node}
iodepth=8
thread=1
apptag=0x0888
apptag_mask=0xffff
stonewall=1
"""
# Jobs run one after the other.
SECTION = """
[{rw}{action}]
rw={rw}
pi_act={action}
pi_chk={checks}
bs={bs}
size={size}
"""


def run(lab):
    words = [metadata for _, metadata, *_ in FORMATS] + ["ms=8,mset=0"]
    lab.boot(fresh=True, formats={index: f"logical_block_size={DATA},physical_block_size={DATA},{metadata}" for index, metadata in enumerate(words)})
    lab.guest.limit(iops=0)
    refused(lab)
    for index, (format, _, *blocks, kind) in enumerate(FORMATS):
        moved(lab, index, format, blocks, kind)
    for index in (0, 1):
        verified(lab, index)
        changed_blocks(lab, index)
    not_possible(lab)


def section(rw, action, checks, block, blocks=4, count=COUNT, more=""):
    return SECTION.format(rw=rw, action=action, checks=checks, bs=block * blocks, size=block * count) + more + "\n"


def bench(lab, index, *sections):
    """A job file; what it came to."""
    text = GLOBAL.format(node=character(index)) + "".join(sections)
    lab.sh(f"cat > /tmp/protection.fio <<'END'\n{text}\nEND")
    return lab.flashwright("bench", "/tmp/protection.fio", "--allow-unwritten", "--json")


def refused(lab):
    """Without a word about it, and before anything was written by commands. Of the second drive: the block layer has it."""
    before = lab.sh(f"head -c 1048576 {drive(1)} | sha256sum")
    for rw in ("randread", "randwrite"):
        answer = lab.flashwright("bench", f"--rw={rw}", "--bs=64k", "--size=1m", "--runtime=200ms", "--ioengine=io_uring_cmd", "--allow-unwritten", "--target", character(1))
        lab.check(f"{rw} without a word about metadata is refused, and says which", answer.code == 2 and "metadata for each block" in answer.err and "pi_act" in answer.err, str(answer))
    lab.check("nothing was written then", lab.sh(f"head -c 1048576 {drive(1)} | sha256sum") == before)


def moved(lab, index, format, blocks, kind):
    """What one side has made the other checks, in both directions; and in the end each its own."""
    checks = "GUARD,APPTAG" if kind == 3 else "GUARD,APPTAG,REFTAG"
    ways = [("randwrite", 0), ("randread", 1), ("read", 0), ("write", 1), ("randread", 0), ("read", 1)]
    answer = bench(lab, index, *(section(rw, action, checks, blocks[action]) for rw, action in ways))
    if not lab.check(f"{format}: what pi_act=0 has written passes all checks with pi_act=1, and the other way round", answer.code == 0, str(answer)):
        return
    records = [job["record"] for job in answer.json["jobs"]]
    bytes = [record["total"]["read_bytes"] + record["total"]["write_bytes"] for record in records]
    lab.check(f"{format}: bs and size are of what a request moves", bytes == [blocks[action] * COUNT for _, action in ways], str(bytes))
    for (_, action), record in list(zip(ways, records))[:2]:
        by = f"type {kind} by the {'controller' if action else 'host'}, which checks {checks}"
        lab.check(f"{format}: the record says who has made and checked the tags with pi_act={action}", any(by in feature for feature in record["engine"]["features"]), str(record["engine"]["features"]))


def verified(lab, index):
    format, _, block, *_ = FORMATS[index]
    answer = bench(lab, index, section("write", 0, "GUARD", block, more="verify=crc32c"))
    if block == DATA:
        lab.check(f"{format}: data are verified", answer.code == 0, str(answer))
    else:
        lab.check(f"{format}: blocks that hold their tags are not verified as well, and why is said", answer.code == 2 and "protection information" in answer.err, str(answer))


def changed_blocks(lab, index):
    format, _, block, *_ = FORMATS[index]
    at = f"offset={5 * block}"
    # Another application writes the sixth block.
    answer = bench(lab, index, section("write", 0, "GUARD,APPTAG,REFTAG", block), section("randwrite", 0, "GUARD", block, 1, 1, f"apptag=0x0999\n{at}"), section("read", 0, "APPTAG", block, 1, 1, f"apptag=0x0999\n{at}"))
    lab.check(f"{format}: a block has the tag of the application that wrote it", answer.code == 0, str(answer))
    answer = bench(lab, index, section("read", 0, "APPTAG", block))
    lab.check(f"{format}: another application's block is found", answer.code == 1 and "Application Tag Check" in answer.err, str(answer))
    # A bit of the data of the eighth block turns on the medium.
    with open(lab.guest.path(f"drive{index}"), "r+b") as file:
        file.seek(7 * DATA + 100)
        byte = file.read(1)[0]
        file.seek(7 * DATA + 100)
        file.write(bytes([byte ^ 1]))
    answer = bench(lab, index, section("read", 0, "GUARD", block))
    lab.check(f"{format}: a bit that turns on the medium is found by the guard", answer.code == 1 and "Guard Check" in answer.err, str(answer))
    answer = bench(lab, index, section("read", 0, "REFTAG", block))
    lab.check(f"{format}: and by nothing else", answer.code == 0, str(answer))


def not_possible(lab):
    for what, index, block, action, checks, more, reason in [
        ("a block without room for its metadata", 0, 4096, 0, "GUARD", "", "bs=16384"),
        ("less metadata than a request has", 1, 4096, 0, "GUARD", "md_per_io_size=64", "md_per_io_size=64: the metadata of a request"),
        ("reference tags of type 3", 2, 4104, 0, "REFTAG", "", "type 3"),
        ("tags of metadata that has none", PLAIN, 4096, 0, "GUARD", "", "not protection information"),
        ("metadata that there is none of", PLAIN + 1, 4096, 1, "GUARD", "", "have no metadata"),
    ]:
        answer = bench(lab, index, section("read", action, checks, block, more=more))
        lab.check(f"{what}: is refused with its reason", answer.code == 2 and reason in answer.err, str(answer))
    text = f"[a]\\nioengine=io_uring_cmd\\nfilename={character(PLAIN)}\\nrw=write\\nbs=16k\\nsize=256k\\nmd_per_io_size=32\\nverify=md5\\n"
    lab.sh(f"printf '{text}' > /tmp/plain.fio")
    answer = lab.flashwright("bench", "/tmp/plain.fio", "--json")
    lab.check("metadata without protection information is written and read", answer.code == 0 and "8 bytes of metadata in buffers of its own" in answer.json["record"]["engine"]["features"], str(answer))

"""What a scenario is given: a booted guest, the program in it, and a place to say what holds.

Every assertion is a sentence, printed with its evidence as `ok`, `FAIL` or `SKIP`. A failed one does not
end its scenario, a `Stop` does: there the rest would only repeat the first failure.
"""

import contextlib
import shlex

from guest import Guest


BRIEF = 120


def drive(index):
    """The node of a drive."""
    return f"/dev/nvme{index}n1"


class Stop(Exception):
    """The scenario cannot go on."""


class Lab:
    """The guest, and the tally."""

    def __init__(self, kernel, initramfs, binary, output=None, full=False):
        self.guest = Guest(kernel, initramfs, binary)
        self.output = output  # a directory for what is worth keeping, or None
        self.full = full  # whether Table 1 runs as the papers have it, for hours
        self.scenario = "lab"
        self.passed, self.failed, self.skipped = 0, 0, 0
        self.again = 0  # scenarios that were made a second time
        self.spoilt = False  # whether the next scenario must not trust what this one left, or needs a machine of another kind

    def tally(self):
        return [self.passed, self.failed, self.skipped, self.again]

    def set_tally(self, tally):
        self.passed, self.failed, self.skipped, self.again = tally

    def add(self, tally):
        self.set_tally([own + other for own, other in zip(self.tally(), tally)])

    def check(self, sentence, holds, evidence=""):
        """Says whether `sentence` holds; returns that."""
        # What holds needs a glance, what fails all there is.
        said = f" ({evidence if not holds or len(evidence) <= BRIEF else evidence[:BRIEF] + '…'})" if evidence else ""
        print(f"{'ok  ' if holds else 'FAIL'} {self.scenario}: {sentence}{said}", flush=True)
        if holds:
            self.passed += 1
        else:
            self.failed += 1
            self.spoilt = True
        return holds

    def require(self, sentence, holds, evidence=""):
        """As `check`, for what the rest of the scenario stands on."""
        if not self.check(sentence, holds, evidence):
            raise Stop

    def skip(self, sentence, why):
        print(f"SKIP {self.scenario}: {sentence}: {why}", flush=True)
        self.skipped += 1

    def sh(self, script, timeout=120):
        """Runs a script that is part of the scenery, not of what is tested: it has to work."""
        answer = self.guest.run(script, timeout)
        self.must(answer)
        return answer.out

    def must(self, answer):
        if answer.code != 0:
            self.require(answer.script.strip().replace("\n", "; ")[:300], False, str(answer))

    def flashwright(self, *words, timeout=300):
        """Runs the program; what it came to is for the scenario to judge."""
        return self.guest.run("flashwright " + " ".join(shlex.quote(str(word)) for word in words), timeout)

    def bench(self, target, timeout=300, **options):
        """One benchmark, which has to work; its JSON document. Most drives here were never written: what is measured is not their
        medium."""
        words = ["--allow-unwritten", *(f"--{name}={value}" for name, value in options.items())]
        answer = self.flashwright("bench", *words, "--target", target, "--json", timeout=timeout)
        self.must(answer)
        return answer.json

    def drives(self, width):
        """The first drives, as a device spec names them."""
        return ",".join(drive(index) for index in range(width))

    @contextlib.contextmanager
    def layout(self, spec, *flags):
        """A layout, up for as long as the block lasts; what was built."""
        what = spec.partition(":")[0]
        up = self.flashwright("layout", "up", spec, "--json", *flags)
        if up.code != 0:
            self.require(f"{what} comes up", False, str(up))
        try:
            yield up.json["built"]
        except Exception:
            # Whatever went wrong, what follows should not trip over it as well. An interruption passes by.
            if self.guest.process is not None:
                self.flashwright("layout", "down")
            raise
        down = self.flashwright("layout", "down")
        if down.code != 0:
            self.require(f"{what} goes down", False, str(down))

    @contextlib.contextmanager
    def volume(self, width, chunk):
        """A labelled volume over the first drives, for as long as the block lasts; its device spec."""
        members = self.drives(width)
        given_up = [word for member in members.split(",") for word in ("--destroy", member)]
        self.must(self.flashwright("volume", "create", f"--chunk={chunk}", *given_up, members))
        try:
            yield f"volume:{members}"
        finally:
            if self.guest.process is not None:
                self.must(self.flashwright("volume", "destroy", *given_up, members))

    def footprint(self, interrupts=True):
        """All that a layout may change about the machine, as lines: settings of all queues, what stands on the
        drives, what is made of them, what is mounted, and who takes which interrupt, which each boot deals anew."""
        affinity = "grep . /proc/irq/*/smp_affinity_list" if interrupts else ""
        return self.sh(f"""
            grep -rs . /sys/block/nvme*/queue | sort
            for drive in /dev/nvme*n1; do echo "$drive $(wipefs -n "$drive" | tr '\\n' ' ')"; done
            ls /sys/block | grep -E '^(md|dm)' | sed 's/^/made /'
            grep -E '/dev/(nvme|md|dm|mapper)|btrfs|xfs' /proc/self/mounts
            {affinity}
            true
        """).splitlines()

    def unchanged(self, sentence, before, interrupts=True):
        """Whether the machine is as it was; what differs is the evidence."""
        after = self.footprint(interrupts)
        differing = sorted(set(before) ^ set(after))
        return self.check(sentence, not differing, "; ".join(differing[:8]) or f"{len(after)} lines")

    def boot(self, fresh=False, arguments="", forgetful_drives=0, queue_pairs=2, formats=None):
        """Boots the guest, with new drives if `fresh`, of a kind that forgets if so many are named, with further kernel
        arguments, with so many pairs of queues for each of the sixteen, and with namespaces of other `formats`, by drive."""
        self.guest.cut_power()
        if fresh:
            self.guest.fresh_disks(forgetful_drives)
        took = self.guest.boot(arguments, queue_pairs, formats)
        print(f"     {self.scenario}: booted in {took:.1f} s", flush=True)

    def cut_power(self, luck=None):
        return self.guest.cut_power(luck)

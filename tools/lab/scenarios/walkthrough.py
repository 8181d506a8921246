"""The commands of docs/walkthrough.md work as they stand, in their order, from bare drives to tuned ones."""

import os
import re

IOPS = 500
PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "..", "docs", "walkthrough.md")


def run(lab):
    lab.guest.limit(iops=IOPS)
    before = lab.footprint()
    lab.sh("rm -rf /state/walk && mkdir -p /state/walk && cp -r /payload/examples /state/walk/")
    # The page's sweep with half of its passes: its commands are tried here, not its figures.
    lab.sh("grep -q '^passes = 4$' /state/walk/examples/node.toml && sed -i 's/^passes = 4$/passes = 2/' /state/walk/examples/node.toml")
    with open(PAGE, encoding="utf-8") as page:
        commands = re.findall(r"^\$ (.*)$", page.read(), re.MULTILINE)
    lab.require("the page has commands", len(commands) > 8, f"{len(commands)}")
    printed = []
    for command in commands:
        # The sweep takes minutes on a host of two cores that emulates three machines more; this tells one that hangs.
        answer = lab.guest.run(f"cd /state/walk && {command}", timeout=2400)
        printed.append(f"$ {command}\n{answer.out}{answer.err}")
        lab.require(f"`{command}` works", answer.code == 0, str(answer))
    if lab.output:
        with open(os.path.join(lab.output, "walkthrough.txt"), "w", encoding="utf-8") as transcript:
            transcript.write("\n".join(printed))
        lab.guest.fetch("/state/walk/results/report.html", os.path.join(lab.output, "walkthrough.html"))
    lab.unchanged("the drives and their queues are as they were", before)

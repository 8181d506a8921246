"""Attacks `memory serve` and `volume export` behind each of their doors.

    tools/hostile [--binary PATH] [--only ATTACK]...   runs the attacks; a line for each
    tools/hostile --table                              writes their table into docs/faults.md

After each attack an honest client has to be served, there have to be as many places as before, and the server must not
have grown; at the end SIGTERM ends it with exit code 0 and nothing has panicked.
"""

import argparse
import os
import pathlib
import shutil
import sys
import tempfile
import traceback
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from attacks import ATTACKS  # noqa: E402
from servers import Certificates, Server  # noqa: E402

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "faults.md"


def page() -> tuple[str, str]:
    """docs/faults.md as it is, and with the table of these attacks."""
    lines = ["| what a client tries | what happens | where |", "|---|---|---|"]
    for name, tries, comes, doors, _ in ATTACKS:
        where = "all doors" if len(doors) == 3 else ", ".join({"tls": "TLS", "unix": "Unix socket", "tcp": "address in clear"}[door] for door in doors)
        lines.append(f"| {tries} | {comes} (`{name}`) | {where} |")
    text = PAGE.read_text()
    begin, end = (text.index(f"<!-- hostile: {mark} -->") for mark in ("begin", "end"))
    head = text[:begin] + "<!-- hostile: begin -->\n"
    return text, head + "\n".join(lines) + "\n" + text[end:]


def run(arguments, kind: str, door: str, scratch: pathlib.Path, certificates) -> list[str]:
    """The attacks on one server behind one door, one after another; what was lost."""
    failed = []

    def say(name, wrong):
        print(f"{'FAIL' if wrong else 'ok'}  {kind} {door} {name}{f': {wrong}' if wrong else ''}", flush=True)
        if wrong:
            failed.append(f"{kind} {door} {name}")

    server = Server(arguments.binary, kind, door, scratch / f"{kind}-{door}", certificates)
    server.serves()
    for name, _, _, doors, function in ATTACKS:
        if door not in doors or arguments.only and name not in arguments.only:
            continue
        if name == "another_user" and os.geteuid() != 0:
            print(f"SKIP {kind} {door} {name}: another user is had by root only")
            continue
        before, wrong = server.resident(), ""
        try:
            function(server)
            server.serves()
            assert server.is_small_again(before), f"the server has grown from {before >> 20} MiB to {server.resident() >> 20} MiB"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the attack's result
            wrong = f"{error!r}"
            if arguments.verbose:
                traceback.print_exc()
        say(name, wrong)
    status = server.end()
    say("end", f"exit code {status}" if status else "panicked" if "panicked" in server.said() else "")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/hostile", description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/debug/flashwright", help="what is attacked")
    parser.add_argument("--only", action="append", help="one attack by its name")
    parser.add_argument("--verbose", action="store_true", help="say where an attack failed")
    parser.add_argument("--table", action="store_true", help="write the table of the attacks into docs/faults.md")
    arguments = parser.parse_args()
    written, made = page()
    if arguments.table:
        PAGE.write_text(made)
        return 0
    if written != made:
        print(f"FAIL  {PAGE.name} has another table of attacks; tools/hostile --table writes it")
        return 1
    arguments.binary = str(pathlib.Path(arguments.binary).absolute())
    missing = [tool for tool in ("certtool", "openssl", "setpriv") if not shutil.which(tool)]
    if missing:
        print(f"SKIP hostile clients: no {', '.join(missing)}")
        return 0
    names = [name for name, *_ in ATTACKS]
    for name in arguments.only or []:
        if name not in names:
            parser.error(f"--only {name}: no such attack; there are {', '.join(names)}")
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(6) as pool:
        scratch = pathlib.Path(scratch)
        certificates = Certificates(scratch / "certificates")
        runs = [pool.submit(run, arguments, kind, door, scratch, certificates)
                for kind in ("memory", "volume") for door in ("unix", "tcp", "tls")]
        failed = [name for one in runs for name in one.result()]
    print(f"hostile clients: {len(failed)} failed" if failed else "hostile clients: all attacks end as they should")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

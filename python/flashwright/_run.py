"""Measuring from Python: the program ``flashwright``, its flags as keywords, its documents as objects.

What runs is the program on the path, in a process of its own, so that the interpreter neither shares its CPU time nor its memory
with a measurement. Its exit codes become the exceptions of this package.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Optional, Union, overload

from ._errors import Error, Failed, Interrupted, InvalidRequest, Refused
from ._results import Frame, Row, load

Option = Union[str, int, float, bool, Path, Sequence[Union[str, Path]]]

#: Seconds between two looks at a sweep that runs.
_POLL_S = 1.0


@dataclass(frozen=True)
class Latency:
    """Latency of one run in nanoseconds."""

    min: int
    mean: float
    stddev: float
    p50: int
    p90: int
    p95: int
    p99: int
    p99_9: int
    p99_99: int
    max: int


@dataclass(frozen=True)
class Warning:
    """Something that bears on a figure; docs/warnings.md has all codes."""

    code: str
    severity: str
    message: str
    remedy: str


@dataclass(frozen=True)
class Run:
    """What ``bench`` measured."""

    iops: float
    bandwidth_bytes_per_s: float
    latency_ns: Latency
    warnings: tuple[Warning, ...]
    #: Stopped before its time: the figures are of the time before.
    interrupted: bool
    #: The whole document, ``flashwright.bench/1``.
    document: Mapping[str, Any]


@dataclass(frozen=True)
class Sweep:
    """A sweep that has ended."""

    #: Where results.db, results.json and report.html are.
    directory: Path
    #: The answer in a sentence.
    headline: str
    #: The whole document, ``flashwright.report/2``.
    document: Mapping[str, Any]

    @overload
    def load(self, engine: Literal["rows"]) -> list[Row]: ...
    @overload
    def load(self, engine: Literal["pandas", "polars"]) -> Frame: ...
    @overload
    def load(self, engine: None = None) -> Union[Frame, list[Row]]: ...
    def load(self, engine: Optional[Literal["rows", "pandas", "polars"]] = None) -> Union[Frame, list[Row]]:
        """The runs, as :func:`flashwright.load` has them."""
        return load(self.directory, engine)


def bench(
    workload: Optional[Union[str, Path]] = None, *, binary: Optional[Union[str, Path]] = None, **options: Option
) -> Run:
    """Runs one workload and returns its figures.

    >>> flashwright.bench(rw="randread", bs="4k", iodepth=32, runtime="5s", target="data").iops

    ``workload`` is a TOML workload or a job file of fio with one job. Options are the flags of ``flashwright bench --help``;
    ``destroy=["/dev/nvme1n1"]`` gives a flag several times. Raises :class:`InvalidRequest`, :class:`Refused` or :class:`Failed`
    as the program's exit code says.
    """
    words = [] if workload is None else [str(workload)]
    document = _document([_program(binary), "bench", *words, *_flags(options), "--json"])
    return Run(
        iops=document["iops"],
        bandwidth_bytes_per_s=document["bandwidth_bytes_per_s"],
        latency_ns=Latency(**{name: document["latency_ns"][name] for name in Latency.__dataclass_fields__}),
        warnings=tuple(
            Warning(**{name: warning[name] for name in Warning.__dataclass_fields__}) for warning in document["warnings"]
        ),
        interrupted=bool(document.get("interrupted", False)),
        document=document,
    )


def sweep(
    space: Optional[Union[str, Path]] = None,
    *,
    output: Union[str, Path],
    progress: Optional[Callable[[Mapping[str, Any]], None]] = None,
    binary: Optional[Union[str, Path]] = None,
    **options: Option,
) -> Sweep:
    """Runs a sweep into the directory ``output`` and returns what came of it.

    ``progress`` is called about once a second with the document of ``flashwright sweep status``; the default prints one line and
    writes over it, which notebooks show as well. Ctrl-C, or the kernel's interrupt of a notebook, stops the sweep between two runs
    and raises :class:`Interrupted`; ``flashwright sweep resume`` goes on with it.
    """
    program, directory = _program(binary), Path(output)
    words = [] if space is None else [str(space)]
    command = [program, "sweep", *words, *_flags(options), "--output", str(directory), "--json"]
    look = _line if progress is None else progress
    document = _document(command, lambda: _look(program, directory, look))
    if progress is None:
        print()
    return Sweep(directory=directory, headline=document["headline"], document=document)


def _program(binary: Optional[Union[str, Path]]) -> str:
    found = shutil.which(str(binary or "flashwright"))
    if found is None:
        raise InvalidRequest(
            f"{binary or 'flashwright'}: there is no such program", "install flashwright, or name it: binary=PATH"
        )
    return found


#: Options of a workload that take 0 or 1; other switches are given or left out.
_SWITCHES = frozenset((
    "direct", "time_based", "norandommap", "hipri", "sqthread_poll", "end_fsync", "dedupe_global", "read_beyond_wp",
    "ignore_zone_limits", "until_steady",
))


def _flags(options: Mapping[str, Option]) -> list[str]:
    flags = []
    for name, value in options.items():
        for one in [value] if isinstance(value, (str, int, float, Path)) else value:
            if not isinstance(one, bool):
                flags.append(f"--{name}={one}")
            elif name in _SWITCHES:
                flags.append(f"--{name}={int(one)}")
            elif one:
                flags.append(f"--{name}")
    return flags


def _document(command: Sequence[str], look: Optional[Callable[[], None]] = None) -> Mapping[str, Any]:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = _collect(process, look)
    except KeyboardInterrupt:
        # The terminal, or the notebook, has sent the program the same signal or none: it keeps what it has either way.
        process.terminate()
        process.wait()
        raise Interrupted("interrupted", "flashwright sweep resume goes on with a sweep") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    try:
        document = json.loads(out)
    except ValueError:
        document = None
    if process.returncode == 0 and isinstance(document, dict):
        return document
    raise _error(process.returncode, document, err)


def _collect(process: subprocess.Popen[str], look: Optional[Callable[[], None]]) -> tuple[str, str]:
    while True:
        try:
            return process.communicate(timeout=_POLL_S if look else None)
        except subprocess.TimeoutExpired:
            if look is not None:
                look()


def _error(code: int, document: Any, err: str) -> Error:
    kinds: Mapping[int, type[Error]] = {2: InvalidRequest, 3: Refused, 130: Interrupted}
    kind = kinds.get(code, Failed)
    told = document.get("error") if isinstance(document, dict) else None
    if isinstance(told, dict):
        return kind(told["message"], told.get("hint"))
    lines = dict(line.split(": ", 1) for line in err.splitlines() if ": " in line)
    return kind(lines.get("error", f"flashwright ended with exit code {code}"), lines.get("hint"))


def _look(program: str, directory: Path, progress: Callable[[Mapping[str, Any]], None]) -> None:
    asked = subprocess.run(
        [program, "sweep", "status", str(directory), "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if asked.returncode == 0:
        progress(json.loads(asked.stdout))


def _line(status: Mapping[str, Any]) -> None:
    done, planned = status.get("done", 0), status.get("planned", 0)
    of = f" of {planned}" if planned else ""
    print(f"\r{status.get('name', 'sweep')}: {done}{of} runs", end="", flush=True)

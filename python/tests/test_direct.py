from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flashwright._direct import BLOCK_BYTES, BUFFER_BYTES, DirectFile


def pattern(length: int) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in range(-(-length // 4)))[:length]


@pytest.mark.parametrize("edge", [0, BLOCK_BYTES, BUFFER_BYTES, 2 * BUFFER_BYTES, 3 * BUFFER_BYTES])
@pytest.mark.parametrize("beside", [-1, 0, 1])
def test_a_file_has_the_bytes_written_whatever_their_number(tmp_path: Path, edge: int, beside: int) -> None:
    content = pattern(max(edge + beside, 0))
    with DirectFile(tmp_path / "file") as file:
        assert file.write(content) == len(content) and file.tell() == len(content)
    assert (tmp_path / "file").read_bytes() == content


def test_a_file_has_the_bytes_written_in_whatever_pieces(tmp_path: Path) -> None:
    content = pattern(BUFFER_BYTES + 100_000)
    with DirectFile(tmp_path / "file") as file:
        begin = 0
        for length in [1, 0, 4095, 2, 70_000, BUFFER_BYTES, 10**9]:
            assert file.tell() == begin
            begin += file.write(memoryview(content)[begin : begin + length])
    assert (tmp_path / "file").read_bytes() == content


def test_a_file_system_without_direct_writes_is_written_through_the_page_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def without_direct(path: str, flags: int, mode: int = 0o777) -> int:
        # As Linux before 6.6 does on tmpfs: the file is made first.
        fd = opened(path, flags & ~os.O_DIRECT, mode)
        if flags & os.O_DIRECT:
            os.close(fd)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return fd

    monkeypatch.setattr(os, "open", without_direct)
    with DirectFile(tmp_path / "file") as file:
        file.write(b"weights")
    assert (tmp_path / "file").read_bytes() == b"weights"


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("another's")
    with pytest.raises(FileExistsError):
        DirectFile(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "another's"


def test_a_file_is_durable_when_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ["pwrite", "ftruncate", "fsync", "close"]:
        call = getattr(os, name)

        def noted(*arguments: Any, name: str = name, call: Callable[..., Any] = call) -> Any:
            calls.append(name)
            return call(*arguments)

        monkeypatch.setattr(os, name, noted)
    file = DirectFile(tmp_path / "file")
    file.write(b"weights")
    file.close()
    file.close()
    assert calls == ["pwrite", "ftruncate", "fsync", "close"]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_write_that_fails_or_ends_early_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    pwrite, offsets = os.pwrite, [at * BUFFER_BYTES]

    def full(fd: int, data: memoryview, offset: int) -> int:
        if offset in offsets:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(fd, data, offset)

    def short(fd: int, data: memoryview, offset: int) -> int:
        return pwrite(fd, data[: BLOCK_BYTES // 2], offset) if offset in offsets else pwrite(fd, data, offset)

    for fails in [full, short]:
        monkeypatch.setattr(os, "pwrite", fails)
        file = DirectFile(tmp_path / fails.__name__)
        with pytest.raises(OSError):
            try:
                file.write(bytes(2 * BUFFER_BYTES + 1))
            finally:
                file.close()
        assert file.closed


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[:BLOCK_BYTES], offset))
    content = pattern(5 * BLOCK_BYTES + 7)
    with DirectFile(tmp_path / "file") as file:
        file.write(content)
    assert (tmp_path / "file").read_bytes() == content

"""A file that is written once, from its beginning to its end, by large aligned writes around the page cache.

What is written is copied once, into one of two aligned buffers; a thread writes the full one while the other is filled. The
last block is padded and the file cut to its length. ``close`` returns when all of it is durable.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Optional

#: Bytes of one write. Larger ones are no faster on drives, and of each file two are in memory.
BUFFER_BYTES = 8 << 20
#: What the offset and the length of a direct write are multiples of, on every file system.
BLOCK_BYTES = 4096


class DirectFile(io.RawIOBase):
    """A new file at ``path``; one that is there is an error. Not for several threads."""

    def __init__(self, path: os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags | os.O_DIRECT, 0o666)
        except OSError as error:
            # A file system in memory has no direct writes.
            if error.errno != errno.EINVAL:
                raise
            self._fd = os.open(path, flags & ~os.O_EXCL, 0o666)
        self._buffers = [mmap.mmap(-1, BUFFER_BYTES) for _ in range(2)]
        self._filled = 0
        self._written = 0
        self._thread = ThreadPoolExecutor(1, "flashwright-write")
        self._pending: Optional[Future[None]] = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written + self._filled

    def write(self, data: Any) -> int:
        with memoryview(data).cast("B") as view:
            taken = 0
            while taken < len(view):
                size = min(len(view) - taken, BUFFER_BYTES - self._filled)
                self._buffers[0][self._filled : self._filled + size] = view[taken : taken + size]
                self._filled += size
                taken += size
                if self._filled == BUFFER_BYTES:
                    self._write_out(BUFFER_BYTES)
            return taken

    def _write_out(self, size: int) -> None:
        """Has the first buffer written, once the other is."""
        self._wait()
        self._pending = self._thread.submit(self._write_at, self._buffers[0], size, self._written)
        self._buffers.reverse()
        self._written += self._filled
        self._filled = 0

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _write_at(self, buffer: mmap.mmap, size: int, offset: int) -> None:
        with memoryview(buffer) as view:
            done = 0
            while done < size:
                count = os.pwrite(self._fd, view[done:size], offset + done)
                # A short direct write ends at a block, unless the file system is full or the drive fails.
                if count == 0 or count % BLOCK_BYTES != 0:
                    raise OSError(errno.EIO, f"write of {size} bytes ended after {done + count}", self._path)
                done += count

    def close(self) -> None:
        """Writes the rest, makes the file durable and closes it; an error leaves it closed, and its content unknown."""
        if self.closed:
            return
        try:
            length = self.tell()
            if self._filled > 0:
                self._write_out(-(-self._filled // BLOCK_BYTES) * BLOCK_BYTES)
            self._wait()
            os.ftruncate(self._fd, length)
            os.fsync(self._fd)
        finally:
            self._thread.shutdown()
            os.close(self._fd)
            super().close()
            self._buffers.clear()

"""Drives that forget: a volatile write cache in front of a file, for power cuts that show who flushes and who does not.

A `Drive` is an NBD export on a Unix socket, with two images of the drive:

* `now`, what is read: all that was written;
* the medium, what a power cut leaves: what a flush put there.

Between two flushes only the places are kept that were written; a flush copies these from `now` to the medium. `cut`
does what a drive does whose power goes: what was not flushed is gone. With `luck` part of it is kept, as caches are
written back in any order and at any time: some writes whole, some in part, by sectors of 512 bytes.

`go_off` and `come_back` are a power cut of the drive alone, or of the host that serves it, while the machine runs on.

Requests are done one after another and answered when they are done, so a flush covers all that was answered before it
and nothing that comes after: the protocol's own rule (NBD, "Ordering of messages and writes"), and a drive's.
"""

import os
import socket
import struct
import threading

SECTOR = 512
PIECE = 1 << 20

# The handshake: magic numbers, flags and the options that qemu asks for (NBD, "Fixed newstyle negotiation").
MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC = b"NBDMAGIC", b"IHAVEOPT", 0x3E889045565A9
FIXED_NEWSTYLE, NO_ZEROES = 1, 2
EXPORT_NAME, ABORT, GO = 1, 2, 7
ACK, INFO, UNSUPPORTED = 1, 3, 0x80000001
# Flushes. No trim and no zeroing: the machine writes zeros, and these are forgotten as well. No forced writes (FUA): who
# is not offered them flushes after the write, as Linux does for all drives that have none.
FLAGS = 1 << 0 | 1 << 2
REQUEST_MAGIC, REPLY_MAGIC = 0x25609513, 0x67446698
READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
EIO, EINVAL = 5, 22


class Drive:
    """One drive. Its medium is the file at `path`, which is there before and stays."""

    def __init__(self, path):
        self.path, self.now_path, self.socket_path = path, f"{path}.now", f"{path}.sock"
        self.medium = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.size = os.fstat(self.medium).st_size
        self.now = os.open(self.now_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.ftruncate(self.now, self.size)
        for start, end in stretches(self.medium, self.size):
            copy(self.medium, self.now, start, end - start)
        self.unflushed = []  # places that were written, offset and length, in their order
        self.flushes = 0
        self.lock, self.off = threading.Lock(), False
        self.listener = self.thread = None

    def start(self):
        """Serves the next connection: the machine's, for as long as it has power."""
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.socket_path)
        self.listener.listen(1)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def cut(self, luck=None):
        """Forgets what was not flushed, once the machine is gone; returns how many bytes were at stake."""
        self.stop()
        self.off = False
        return self.forget(luck)

    def go_off(self, luck=None):
        """Forgets likewise, with the machine still running, and fails every request until it comes back."""
        with self.lock:
            self.off = True
            return self.forget(luck)

    def come_back(self):
        with self.lock:
            self.off = False

    def forget(self, luck):
        if luck is not None:
            for offset, length in [piece for place in self.unflushed for piece in kept(place, luck)]:
                copy(self.now, self.medium, offset, length)
        for offset, length in self.unflushed:
            copy(self.medium, self.now, offset, length)
        at_stake = sum(length for _, length in self.unflushed)
        self.unflushed = []
        return at_stake

    def stop(self):
        """Takes no more connections, and waits until all that came over the last one is done."""
        if self.thread is not None:
            # Wakes who waits for a machine that never came; one that came has closed its end by dying.
            self.listener.shutdown(socket.SHUT_RDWR)
            self.thread.join()
            self.listener.close()
            os.unlink(self.socket_path)
            self.thread = None

    def close(self):
        """Ends it; its medium stays."""
        self.stop()
        for descriptor in (self.medium, self.now):
            os.close(descriptor)
        os.unlink(self.now_path)

    def serve(self):
        try:
            connection = self.listener.accept()[0]
        except OSError:
            return
        with connection:
            try:
                if self.shake_hands(connection):
                    while self.request(connection):
                        pass
            except (ConnectionError, EOFError):
                pass  # the machine is gone, as machines go here

    def shake_hands(self, connection):
        """Until the one export is chosen; false if the machine gives up."""
        connection.sendall(MAGIC + OPTION_MAGIC + struct.pack(">H", FIXED_NEWSTYLE | NO_ZEROES))
        receive(connection, 4)
        while True:
            magic, option, length = struct.unpack(">8sII", receive(connection, 16))
            receive(connection, length)
            if magic != OPTION_MAGIC:
                return False
            export = struct.pack(">QH", self.size, FLAGS)
            if option == EXPORT_NAME:
                connection.sendall(export)
                return True
            answer = lambda kind, data=b"": connection.sendall(struct.pack(">QIII", OPTION_REPLY_MAGIC, option, kind, len(data)) + data)
            if option == GO:
                answer(INFO, struct.pack(">H", 0) + export)
                answer(ACK)
                return True
            answer(ACK if option == ABORT else UNSUPPORTED)
            if option == ABORT:
                return False

    def request(self, connection):
        """One request; false when there will be no more."""
        magic, _, kind, cookie, offset, length = struct.unpack(">IHHQQI", receive(connection, 28))
        if magic != REQUEST_MAGIC or kind == DISCONNECT:
            return False
        data, error = b"", 0
        given = receive(connection, length) if kind == WRITE else b""
        with self.lock:
            if self.off:
                error = EIO
            elif kind == WRITE:
                self.write(offset, given)
            elif kind == READ:
                data = os.pread(self.now, length, offset)
            elif kind == FLUSH:
                self.flush()
            else:
                error = EINVAL
        connection.sendall(struct.pack(">IIQ", REPLY_MAGIC, error, cookie) + data)
        return True

    def write(self, offset, data):
        os.pwrite(self.now, data, offset)
        self.unflushed.append((offset, len(data)))

    def flush(self):
        for offset, length in self.unflushed:
            copy(self.now, self.medium, offset, length)
        self.unflushed = []
        self.flushes += 1


def kept(place, luck):
    """What is left of one write that was not flushed: all, nothing, or some of its sectors."""
    offset, length = place
    fate = luck.randrange(3)
    if fate == 0:
        return []
    if fate == 1:
        return [place]
    return [(at, SECTOR) for at in range(offset, offset + length, SECTOR) if luck.random() < 0.5]


def copy(source, destination, offset, length):
    while length > 0:
        data = os.pread(source, min(length, PIECE), offset)
        os.pwrite(destination, data, offset)
        offset, length = offset + len(data), length - len(data)


def stretches(descriptor, size):
    """Where a file has data: drives that are new are one hole."""
    at = 0
    while at < size:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:  # ENXIO: nothing but a hole from here on
            return
        at = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, at


def receive(connection, length):
    pieces = []
    while length:
        data = connection.recv(min(length, PIECE))
        if not data:
            raise EOFError
        pieces.append(data)
        length -= len(data)
    return b"".join(pieces)

"""NBD as a client that may break its rules: every message is made of what the caller says.

The protocol is that of https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md.
"""

import socket
import ssl
import struct

GREETING, OPTION, OPTION_REPLY = 0x4E42444D41474943, 0x49484156454F5054, 0x3E889045565A9
REQUEST, SIMPLE_REPLY = 0x25609513, 0x67446698
EXPORT_NAME, ABORT, LIST, STARTTLS, INFO, GO, STRUCTURED, SET_META = 1, 2, 3, 5, 6, 7, 8, 10
ACK = 1
READ, WRITE, _, FLUSH, TRIM, CACHE, ZEROES = range(7)


class Gone(Exception):
    """The server has ended the connection, or never took it."""


class Client:
    """A connection to a server; nothing is said on it until it is asked to."""

    def __init__(self, address, patience: float = 60, source: str | None = None):
        self.socket = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        self.cookie = 0
        if source:
            self.socket.bind((source, 0))
        try:
            # With no time limit: at a Unix socket whose queue is full, one would make it an error at once.
            self.socket.connect(address)
        except ConnectionError as error:
            raise Gone(error) from error
        self.socket.settimeout(patience)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data: bytes):
        try:
            self.socket.sendall(data)
        except (ConnectionError, ssl.SSLError) as error:
            raise Gone(error) from error

    def take(self, length: int) -> bytes:
        parts = []
        while length:
            try:
                part = self.socket.recv(min(length, 1 << 20))
            except (ConnectionError, ssl.SSLError) as error:
                raise Gone(error) from error
            if not part:
                raise Gone("the server has closed the connection")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def finish(self):
        """Nothing more is sent; what comes can still be read."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        return self

    def is_ended(self) -> bool:
        """Whether the server ends the connection, whatever it says before."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except (ConnectionError, ssl.SSLError):
            pass
        except TimeoutError:
            return False
        return True

    # The handshake

    def greet(self, flags: int = 3):
        magic, option, _ = struct.unpack(">QQH", self.take(18))
        assert (magic, option) == (GREETING, OPTION), "not a server of NBD"
        self.send(struct.pack(">I", flags))
        return self

    def option(self, kind: int, data: bytes = b"", length: int | None = None):
        self.send(struct.pack(">QII", OPTION, kind, len(data) if length is None else length) + data)

    def answer(self) -> tuple[int, bytes]:
        magic, _, kind, length = struct.unpack(">QIII", self.take(20))
        assert magic == OPTION_REPLY, "not an answer to an option"
        return kind, self.take(length)

    def ask(self, kind: int, data: bytes = b"") -> int:
        """The last of an option's replies: ACK or an error."""
        self.option(kind, data)
        while True:
            reply, _ = self.answer()
            if reply == ACK or reply >> 31:
                return reply

    def starttls(self, tls: ssl.SSLContext):
        assert self.ask(STARTTLS) == ACK, "TLS is refused"
        try:
            self.socket = tls.wrap_socket(self.socket)
        except (ssl.SSLError, ConnectionError) as error:
            raise Gone(error) from error
        return self

    def go(self, name: bytes = b"") -> bool:
        return self.ask(GO, struct.pack(">I", len(name)) + name + struct.pack(">H", 0)) == ACK

    # Requests

    def request(self, kind: int, offset: int = 0, length: int = 0, data: bytes = b"", flags: int = 0):
        self.cookie += 1
        self.send(struct.pack(">IHHQQI", REQUEST, flags, kind, self.cookie, offset, length) + data)

    def reply(self, length: int = 0) -> tuple[int, bytes]:
        """The error and the data of the next simple reply."""
        magic, error, _ = struct.unpack(">IIQ", self.take(16))
        assert magic == SIMPLE_REPLY, f"not a simple reply: {magic:#x}"
        return error, b"" if error else self.take(length)

    def call(self, kind: int, offset: int = 0, length: int = 0, data: bytes = b"", flags: int = 0) -> tuple[int, bytes]:
        self.request(kind, offset, length, data, flags)
        return self.reply(length if kind == READ else 0)

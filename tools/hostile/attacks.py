"""What hostile clients try, each with what has to come of it.

An attack is a function of a server; it asserts what the attacker is told. That the server then still serves honest
clients, has all of its places and has not grown is asserted after each of them, by whoever runs it.
"""

import random
import socket
import struct
import threading
import time
import ssl
import subprocess

from nbd import (ABORT, ACK, CACHE, EXPORT_NAME, FLUSH, GO, INFO, LIST, READ, SET_META, STARTTLS, STRUCTURED, TRIM,
                 WRITE, ZEROES, Client, Gone)
from servers import PLACES, SIZE, at_last

ATTACKS = []
ALL = ("unix", "tcp", "tls")
# By when who does not come through the handshake is sent away: 10 s, and what a busy machine adds; well below the 60 s of
# a message that does not go on.
AWAY = 30


def attack(tries: str, comes: str, doors=ALL):
    """Names what is tried and what comes of it, for the table; behind which doors it can be tried."""
    def register(function):
        ATTACKS.append((function.__name__, tries, comes, doors, function))
        return function
    return register


def ended(act):
    """The server ends the connection, at once or after what it answers."""
    try:
        client = act()
    except Gone:
        return
    assert client.is_ended(), "the connection goes on"


def sent_away(clients, since: float):
    """The server ends them all by the limit on handshakes."""
    assert all(client.is_ended() for client in clients), "a silent client stays"
    assert time.monotonic() - since < AWAY, f"it is sent away after {time.monotonic() - since:.0f} s"


# Crowds


@attack("500 connections that come and go while 64 have sent half of a handshake",
        "each is turned away or makes room; the places are as many as before")
def crowd(server):
    halves = []
    for _ in range(64):
        try:
            halves.append(Client(server.address))
            halves[-1].send(b"\0\0")
        except Gone:
            pass
    for _ in range(500):
        try:
            Client(server.address).socket.close()
        except Gone:
            pass
    for client in halves:
        client.socket.close()


@attack("thousands of random arrivals, refusals, half handshakes and leaves",
        "the places are as many as before")
def comings_and_goings(server):
    draw = random.Random(2009)
    inside, halves = [], []
    for _ in range(1500):
        match draw.randrange(5):
            case 0:
                halves.append(Client(server.address))
            case 1:
                try:
                    inside.append(Client(server.address).greet())
                    inside[-1].go()
                except Gone:
                    pass
            case 2 if inside:
                inside.pop(draw.randrange(len(inside))).socket.close()
            case 3 if halves:
                halves.pop(draw.randrange(len(halves))).socket.close()
            case 4 if len(inside) + len(halves) > 3 * PLACES:
                for client in halves:
                    client.socket.close()
                halves.clear()
    for client in inside + halves:
        client.socket.close()


@attack("clients for every place that connect and say nothing",
        "they give their places to those who come, and are sent away after 10 s")
def silence(server):
    since = time.monotonic()
    silent = [Client(server.address) for _ in range(PLACES)]
    with server.enter():
        pass
    sent_away(silent, since)


@attack("a handshake of one byte a second", "it is sent away after 10 s")
def slow_loris(server):
    def connected():
        client = Client(server.address)
        client.take(18)
        return client

    client = at_last(connected)
    for byte in struct.pack(">IQII", 3, 0x49484156454F5054, LIST, 4096) + bytes(AWAY - 20):
        try:
            client.send(bytes([byte]))
        except Gone:
            return
        time.sleep(1)
    raise AssertionError(f"the handshake goes on after {AWAY} s")


@attack("payloads that never come, on connections of one host for every place",
        "a client of another host is let in at once", doors=("tcp", "tls"))
def all_places(server):
    clients = [server.enter() for _ in range(PLACES)]
    for client in clients:
        client.request(WRITE, SIZE // 2, 1 << 20)
    other = Client(server.address, source="127.0.0.2").greet()
    if server.door == "tls":
        other.starttls(server.certificates.context("client"))
    assert other.go() and other.call(READ, 0, 512)[0] == 0, "who comes from another host is kept out"
    for client in (*clients, other):
        client.socket.close()


# Sizes


@attack("options that claim up to 4 GiB of data", "the connection is ended; nothing is set aside for it")
def oversize_option(server):
    for kind in (EXPORT_NAME, LIST, INFO, GO, SET_META, 4711):
        for length in (0xFFFFFFFF, 0x7FFFFFFF, 1 << 20):
            def act(kind=kind, length=length):
                client = server.come()
                client.option(kind, bytes(4096), length)
                return client.finish()
            ended(act)


@attack("names and queries that are longer than the option that carries them", "the option is invalid; others go on")
def lying_lengths(server):
    with server.come() as client:
        for data in (struct.pack(">I", 0xFFFFFFFF), struct.pack(">I", 5) + b"abc", b"", b"\0",
                     struct.pack(">IH", 0, 0xFFFF), struct.pack(">I", 4097) + bytes(4099)):
            assert client.ask(GO, data) >> 31, "a name that is not there is taken"
        for data in (struct.pack(">II", 0, 0xFFFFFFFF), struct.pack(">III", 0, 1, 0xFFFFFFF0)):
            client.ask(STRUCTURED)
            assert client.ask(SET_META, data) >> 31, "a query that is not there is taken"
        assert client.go()


@attack("reads of 4 GiB, and writes that claim as much", "an error, or the end of the connection")
def oversize_request(server):
    with server.enter() as client:
        error, _ = client.call(READ, 0, 0xFFFFFFFF)
        assert error, "4 GiB are read"

    def act():
        client = server.enter()
        client.request(WRITE, 0, 0xFFFFFFFF, bytes(65536))
        return client.finish()
    ended(act)


@attack("ranges beyond the end, and offsets that overflow", "an error each, and nothing is written")
def out_of_range(server):
    with server.enter() as client:
        for kind in (READ, WRITE, TRIM, CACHE, ZEROES):
            for offset, length in ((SIZE, 1), (SIZE - 1, 2), (2 ** 64 - 1, 1), (2 ** 63, 4096), (2 ** 64 - 512, 1024)):
                data = bytes(length) if kind == WRITE else b""
                assert client.call(kind, offset, length, data)[0], f"request {kind} at {offset:#x} is done"
        assert client.call(READ, SIZE - 1, 1)[0] == 0


# Floods


@attack("100,000 options without an end", "the connection is ended")
def option_flood(server):
    def act():
        client = server.come()
        for _ in range(1000):
            client.send(struct.pack(">QII", 0x49484156454F5054, LIST, 0) * 100)
            client.socket.settimeout(0.001)
            try:
                while client.socket.recv(1 << 20):
                    pass
            except (TimeoutError, ssl.SSLError, ConnectionError):
                pass
            client.socket.settimeout(60)
        return client
    ended(act)


@attack("64 reads of 32 MiB on every connection whose answers nobody takes",
        "they wait in the sockets; the server's memory stays bounded")
def no_reader(server):
    clients = []
    for _ in range(PLACES):
        client = server.enter()
        client.socket.settimeout(0.2)
        clients.append(client)
        try:
            for _ in range(64):
                client.request(READ, 0, 32 << 20)
        except (TimeoutError, Gone):
            pass
    assert server.resident() < server.most, f"{server.resident() >> 20} MiB"
    for client in clients:
        client.socket.close()


@attack("2,048 discards and fetches of half the export, then nobody who waits for them, and SIGTERM at once",
        "the server ends within 30 s", doors=("unix",))
def ask_and_go(server):
    with server.another() as other:
        for client in [other.enter() for _ in range(PLACES)]:
            try:
                for _ in range(64):
                    for kind in (TRIM, CACHE):
                        client.request(kind, SIZE // 2, SIZE // 2)
            except (Gone, TimeoutError):
                pass
            client.socket.close()
        since = time.monotonic()
        assert other.end() == 0, f"it ends with {other.child.returncode}"
        assert time.monotonic() - since < AWAY, f"it ends after {time.monotonic() - since:.0f} s"


# What is not the protocol


@attack("random bytes in place of the handshake", "the connection is ended")
def noise_in_the_handshake(server):
    draw = random.Random(2010)
    for _ in range(200):
        try:
            with Client(server.address) as client:
                client.take(18)
                client.send(draw.randbytes(draw.randrange(1, 400)))
                client.finish()
                assert client.is_ended()
        except (Gone, OSError):
            pass


@attack("random bytes in place of requests, and requests with random fields",
        "the connection is ended, or each is answered with an error or done; none beyond the export")
def noise_in_requests(server):
    draw = random.Random(2011)
    for _ in range(60):
        try:
            with server.enter() as client:
                if draw.randrange(2):
                    client.send(draw.randbytes(draw.randrange(28, 2000)))
                for _ in range(20):
                    client.request(draw.randrange(12), draw.getrandbits(64), draw.getrandbits(draw.randrange(1, 33)),
                                   draw.randbytes(draw.randrange(64)), draw.getrandbits(16))
                client.finish()
                assert client.is_ended()
        except (Gone, OSError):
            pass


@attack("client flags that do not exist, and the handshake of 2007", "the connection is ended, or an option is demanded")
def odd_flags(server):
    for flags in (0xFFFFFFFF, 0x80000000, 4):
        client = server.greeted(flags)
        assert client.is_ended(), f"flags {flags:#x} are taken"
    with server.greeted(0) as client:
        client.option(ABORT)
        assert client.is_ended()


@attack("other exports' names, with `../`, with NUL, with bytes that are no text", "none of them is there")
def other_exports(server):
    with server.come() as client:
        for name in (b"x", b"../../etc/shadow", b"a\0b", b"\xff\xfe", b"%s%n", b" "):
            assert not client.go(name), f"{name} is served"
        assert client.go()


# TLS


@attack("any option but STARTTLS, in clear", "it is told that TLS is required, and nothing else", doors=("tls",))
def without_tls(server):
    with server.greeted() as client:
        for kind in (LIST, INFO, GO, STRUCTURED, SET_META, 4711):
            client.option(kind, struct.pack(">IH", 0, 0))
            reply, _ = client.answer()
            assert reply == 0x80000005, f"option {kind}: {reply:#x}"
    ended(lambda: named(server))


def named(server):
    client = server.greeted()
    client.option(EXPORT_NAME)
    return client


@attack("options in clear, in the same packet behind STARTTLS", "they are taken for the TLS that they are not: the end",
        doors=("tls",))
def injected(server):
    def act():
        client = server.greeted()
        go = struct.pack(">QII", 0x49484156454F5054, GO, 6) + struct.pack(">IH", 0, 0)
        client.send(struct.pack(">QII", 0x49484156454F5054, STARTTLS, 0) + go)
        assert client.answer() == (ACK, b"")
        return client
    ended(act)


@attack("what was agreed in clear before STARTTLS (structured replies)", "it is forgotten with TLS", doors=("tls",))
def agreed_before(server):
    with server.greeted() as client:
        client.ask(STRUCTURED)
        client.starttls(server.certificates.context("client"))
        assert client.go()
        assert client.call(READ, 0, 512)[0] == 0, "a structured reply comes to who did not ask for one"


@attack("TLS 1.0 and 1.1, and ciphers without secrecy or identity", "no handshake", doors=("tls",))
def downgrade(server):
    certificates = server.certificates.directory
    for offer in (["-tls1", "-cipher", "DEFAULT:@SECLEVEL=0"], ["-tls1_1", "-cipher", "DEFAULT:@SECLEVEL=0"],
                  ["-tls1_2", "-cipher", "NULL:@SECLEVEL=0"], ["-tls1_2", "-cipher", "aNULL:@SECLEVEL=0"]):
        # Who accepts the offer: the client makes it indeed, and it is the server under attack that refuses.
        with subprocess.Popen(
                ["openssl", "s_server", "-accept", "127.0.0.1:0", *offer,
                 "-cert", certificates / "server-cert.pem", "-key", certificates / "server-key.pem"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as lax:
            try:
                line = next(line for line in lax.stdout if line.startswith(b"ACCEPT 127"))
                assert _connects(int(line.rsplit(b":", 1)[1]), offer, certificates), f"{offer} is not made"
            finally:
                lax.kill()
        assert not _connects_through_starttls(server, offer), f"{offer} is accepted"


def _connects(port: int, offer, certificates) -> bool:
    """Whether a client of TLS that makes this offer is taken."""
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *offer, "-brief",
         "-cert", certificates / "client-cert.pem", "-key", certificates / "client-key.pem"],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    return b"CONNECTION ESTABLISHED" in done.stderr


def _connects_through_starttls(server, offer) -> bool:
    """openssl has no STARTTLS of NBD: a thread goes before it, and passes on what it says."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked = threading.Event()

    def relay():
        near, _ = listener.accept()
        try:
            with server.greeted() as far:
                assert far.ask(STARTTLS) == ACK
                asked.set()
                pump = threading.Thread(target=_pump, args=(far.socket, near), daemon=True)
                pump.start()
                _pump(near, far.socket)
                pump.join()
        except (Gone, OSError):
            pass
        near.close()

    thread = threading.Thread(target=relay, daemon=True)
    thread.start()
    is_taken = _connects(listener.getsockname()[1], offer, server.certificates.directory)
    listener.close()
    thread.join(60)
    assert asked.is_set(), "the server was not reached"
    return is_taken


def _pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(1)
    except OSError:
        pass


@attack("no certificate; a revoked, expired or early one, one of another authority, for another use, or of another name",
        "none of them reaches an export", doors=("tls",))
def certificates(server):
    for name in (None, "revoked", "expired", "early", "foreign", "purpose", "another"):
        try:
            with server.greeted() as client:
                client.starttls(server.certificates.context(name))
                assert not client.go(), f"{name} is let in"
        except Gone:
            pass


@attack("another client's whole conversation under TLS, recorded and sent again", "no handshake", doors=("tls",))
def replay(server):
    sent = _recorded(server)

    def act():
        client = server.greeted()
        assert client.ask(STARTTLS) == ACK
        client.send(sent)
        return client
    ended(act)


def _recorded(server) -> bytes:
    """What an honest client sends behind STARTTLS, as somebody on the way sees it."""
    client = server.greeted()
    assert client.ask(STARTTLS) == ACK
    incoming, outgoing, sent = ssl.MemoryBIO(), ssl.MemoryBIO(), b""
    tls = server.certificates.context("client").wrap_bio(incoming, outgoing)

    def until(act):
        nonlocal sent
        while True:
            try:
                return act()
            except ssl.SSLWantReadError:
                data = outgoing.read()
                sent += data
                client.send(data)
                incoming.write(client.socket.recv(1 << 16))
    until(tls.do_handshake)
    tls.write(struct.pack(">QIIIH", 0x49484156454F5054, GO, 6, 0, 0))
    until(lambda: tls.read(20))
    sent += outgoing.read()
    client.socket.close()
    return sent


@attack("TLS that is agreed and never begun, or stops in its handshake", "it is sent away after 10 s", doors=("tls",))
def tls_loris(server):
    since = time.monotonic()
    silent = [server.greeted() for _ in range(4)]
    for number, client in enumerate(silent):
        client.ask(STARTTLS)
        client.send(b"\x16\x03\x01\x02"[:number])
    sent_away(silent, since)


# Others on this host


@attack("another user at the Unix socket", "the kernel does not let it in", doors=("unix",))
def another_user(server):
    code = f"import socket; socket.socket(socket.AF_UNIX).connect({server.address!r})"
    for path in (server.scratch, server.scratch.parent, server.scratch.parent.parent):
        path.chmod(path.stat().st_mode | 0o011)
    done = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", "python3", "-c", code], capture_output=True)
    assert b"PermissionError" in done.stderr, done.stderr.decode()

"""The servers that are attacked, each behind each of its doors, and the certificates that they believe."""

import os
import pathlib
import signal
import ssl
import subprocess
import time

from nbd import Client, FLUSH, READ, WRITE, Gone

SIZE = 64 << 20
PLACES = 16
# What a server may hold more than at its start once everybody has left, and for each client while they are there: a
# connection to a volume has 16 MiB of buffers and up to 64 MiB of replies that wait (docs/verbs/volume-export.md).
GROWTH = 32 << 20
OF_A_CLIENT = {"memory": 2 << 20, "volume": 80 << 20}

# Clients of the attack before may still hold places.
PATIENCE_S = 60


def at_last(act):
    """What `act` returns once the server does not turn it away; a server that has lost its places always does."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return act()
        except Gone as error:
            if time.monotonic() > until:
                raise AssertionError("nobody is served any more") from error
            time.sleep(0.01)


AUTHORITY = """cn = "the authority"
ca
cert_signing_key
crl_signing_key
expiration_days = 3650
"""
LEAF = """cn = "{name}"
dns_name = "localhost"
ip_address = "127.0.0.1"
signing_key
{use}
serial = {serial}
activation_date = "{since}"
expiration_date = "{until}"
"""


class Certificates:
    """A directory for `--tls-certificates`, and clients' certificates of every kind."""

    CLIENTS = {
        # name: (common name, what it may be used for, valid from and until, signed by the authority that is believed)
        "client": ("reader", "tls_www_client", "2020-01-01", "2090-01-01", True),
        "another": ("writer", "tls_www_client", "2020-01-01", "2090-01-01", True),
        "revoked": ("reader", "tls_www_client", "2020-01-01", "2090-01-01", True),
        "expired": ("reader", "tls_www_client", "2020-01-01", "2021-01-01", True),
        "early": ("reader", "tls_www_client", "2080-01-01", "2090-01-01", True),
        "foreign": ("reader", "tls_www_client", "2020-01-01", "2090-01-01", False),
        "purpose": ("reader", "tls_www_server", "2020-01-01", "2090-01-01", True),
    }

    def __init__(self, directory: pathlib.Path):
        self.directory = directory
        directory.mkdir()
        for authority in ("ca", "other-ca"):
            self.key(authority)
            self.write(f"{authority}.cfg", AUTHORITY)
            self.certtool("--generate-self-signed", "--load-privkey", f"{authority}-key.pem",
                          "--template", f"{authority}.cfg", "--outfile", f"{authority}-cert.pem")
        self.leaf(1, "server", ("localhost", "tls_www_server", "2020-01-01", "2090-01-01", True))
        for serial, (name, kind) in enumerate(self.CLIENTS.items(), 2):
            self.leaf(serial, name, kind)
        self.write("crl.cfg", "crl_next_update = 3650\ncrl_number = 1\n")
        self.certtool("--generate-crl", "--load-ca-privkey", "ca-key.pem", "--load-ca-certificate", "ca-cert.pem",
                      "--load-certificate", "revoked-cert.pem", "--template", "crl.cfg", "--outfile", "ca-crl.pem")

    def certtool(self, *arguments):
        command = ["certtool", "--no-text", *arguments]
        subprocess.run(command, cwd=self.directory, check=True, capture_output=True)

    def write(self, name, text):
        (self.directory / name).write_text(text)

    def key(self, name):
        self.certtool("--generate-privkey", "--key-type", "ecdsa", "--curve", "secp256r1",
                      "--outfile", f"{name}-key.pem")

    def leaf(self, serial, name, kind):
        common, use, since, until, is_believed = kind
        authority = "ca" if is_believed else "other-ca"
        self.key(name)
        self.write(f"{name}.cfg", LEAF.format(name=common, use=use, serial=serial, since=since, until=until))
        self.certtool("--generate-certificate", "--load-privkey", f"{name}-key.pem", "--load-ca-privkey",
                      f"{authority}-key.pem", "--load-ca-certificate", f"{authority}-cert.pem",
                      "--template", f"{name}.cfg", "--outfile", f"{name}-cert.pem")

    def context(self, name: str | None) -> ssl.SSLContext:
        """TLS as a client with this certificate, or with none, that believes whatever the server is."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if name:
            context.load_cert_chain(self.directory / f"{name}-cert.pem", self.directory / f"{name}-key.pem")
        return context


class Server:
    """A running server behind one door: `unix`, `tcp` (in clear) or `tls`."""

    def __init__(self, binary, kind: str, door: str, scratch: pathlib.Path, certificates: Certificates):
        self.most = GROWTH + PLACES * OF_A_CLIENT[kind]
        self.binary, self.kind, self.door, self.certificates = binary, kind, door, certificates
        self.scratch = scratch
        scratch.mkdir()
        socket = scratch / "socket"
        doors = {
            "unix": ["--socket", str(socket)],
            "tcp": ["--listen", "127.0.0.1:0", "--insecure"],
            "tls": ["--listen", "127.0.0.1:0", "--tls-certificates", str(certificates.directory),
                    "--tls-authorize", "CN=reader"],
        }
        if kind == "memory":
            what = ["memory", "serve", "--size", str(SIZE)]
        else:
            with open(scratch / "image", "wb") as image:
                image.truncate(SIZE)
            what = ["volume", "export", str(scratch / "image"), "--direct", "0", "--destroy", str(scratch / "image")]
        self.log = open(scratch / "log", "w+b")
        self.child = subprocess.Popen(
            [binary, *what, *doors[door], "--max-connections", str(PLACES)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, cwd=scratch)
        self.address = str(socket)
        for line in self.child.stdout:
            if line.startswith(b"ready:"):
                if door != "unix":
                    port = line.split(b"//")[1].split(b"/")[0].rsplit(b":", 1)[1]
                    self.address = ("127.0.0.1", int(port))
                break
        else:
            raise SystemExit(f"{kind} {door}: the server has not begun: {self.said()}")

    def another(self) -> "Server":
        """One more of the same, for an attack that ends it."""
        return Server(self.binary, self.kind, self.door, self.scratch / "another", self.certificates)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def greeted(self, flags: int = 3) -> Client:
        """A client in clear that has exchanged greetings."""
        return at_last(lambda: Client(self.address).greet(flags))

    def come(self) -> Client:
        """A client that keeps the door's rules, at its greeting; behind TLS, with the certificate that is let in."""
        return at_last(lambda: self._come(60))

    def _come(self, patience) -> Client:
        client = Client(self.address, patience).greet()
        if self.door == "tls":
            client.starttls(self.certificates.context("client"))
        return client

    def enter(self) -> Client:
        client = self.come()
        assert client.go(), "the export is refused"
        return client

    def is_full(self) -> bool:
        """One more is turned away."""
        try:
            with self._come(5) as client:
                return not client.go()
        except Gone:
            return True

    def resident(self) -> int:
        """Bytes of memory that the process has to itself, beside what it serves."""
        for line in open(f"/proc/{self.child.pid}/status", encoding="ascii"):
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
        raise AssertionError("the server has ended")

    def serves(self):
        """An honest client is served, what it writes is there, and no more and no fewer places than there were."""
        with self.enter() as client:
            data = os.urandom(8192)
            assert client.call(WRITE, 4096, len(data), data) == (0, b""), "a write fails"
            assert client.call(FLUSH) == (0, b""), "a flush fails"
            assert client.call(READ, 4096, len(data)) == (0, data), "a read finds something else"
        clients = [self.enter() for _ in range(PLACES)]
        try:
            for client in clients:
                assert client.call(READ, 0, 1)[0] == 0, "a place is none"
            assert self.is_full(), "one more is let in than there are places"
        finally:
            for client in clients:
                client.socket.close()

    def is_small_again(self, before: int) -> bool:
        """Whether what the server holds goes back to what it held before, as those who came leave."""
        for _ in range(1000):
            if self.resident() - before < GROWTH:
                return True
            time.sleep(0.01)
        return False

    def end(self) -> int:
        self.child.send_signal(signal.SIGTERM)
        try:
            return self.child.wait(60)
        finally:
            self.child.kill()

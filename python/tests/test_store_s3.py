"""The slow tier is an object store: moto's server, in the Python that FLASHWRIGHT_MOTO_PYTHON names, or the system's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Optional

import flashwright
import pytest

from .conftest import write

BUCKET = "checkpoints"


class Server:
    """A server with one bucket, in which a test has a prefix of its own."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.prefix = "run"

    def url(self) -> str:
        options = f"endpoint=http://127.0.0.1:{self.port}&region=us-east-1&allow_http=true"
        return f"s3://{BUCKET}/{self.prefix}?{options}"

    def request(self, method: str, key: str, body: Optional[bytes] = None) -> Optional[bytes]:
        path = f"/{BUCKET}/{self.prefix}/{key}" if key else f"/{BUCKET}"
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=body, method=method)
        # Moto wants to know who asks, and does not look whether it is true.
        who = "Credential=testing/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
        asked.add_header("Authorization", f"AWS4-HMAC-SHA256 {who}")
        try:
            with urllib.request.urlopen(asked) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="session")
def moto() -> Iterator[Server]:
    python = os.environ.get("FLASHWRIGHT_MOTO_PYTHON", "python3")
    try:
        known = subprocess.run([python, "-c", "import moto.server, flask"], stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        known = False
    if not known:
        print("SKIP a server that speaks S3: there is no moto[server]")
        pytest.skip("there is no moto[server]")
    for _ in range(5):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        command = [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Somebody else may have got the port in between; then the server has ended.
        while not listens(port) and process.poll() is None:
            time.sleep(0.05)
        if process.poll() is None:
            break
    try:
        server = Server(port)
        server.request("PUT", "", b"")
        yield server
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def server(moto: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    moto.prefix = tmp_path.name
    return moto


Open = Callable[..., flashwright.Store]


@pytest.fixture
def open_remote(server: Server, tmp_path: Path) -> Iterator[Open]:
    opened: list[flashwright.Store] = []

    def open_one(**options: object) -> flashwright.Store:
        options.setdefault("slow", server.url())
        store = flashwright.Store(tmp_path / "fast", **options)  # type: ignore[arg-type]
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        try:
            store.close()
        except flashwright.Error:
            pass


def test_checkpoints_are_drained_to_a_bucket_kept_there_and_restored(
    open_remote: Open, server: Server, tmp_path: Path
) -> None:
    store = open_remote(keep_fast=1, keep_slow=2)
    for step in (9, 10, 11):
        write(store, step)
        store.wait(step)
    assert store.steps() == [
        flashwright.Step(10, fast=False, slow=True),
        flashwright.Step(11, fast=True, slow=True),
    ]
    assert store.latest() == 11
    assert server.request("GET", "step-00000011/model.pt") == b"weights 11"
    assert server.request("GET", "step-00000009/model.pt") is None
    latest = json.loads(server.request("GET", "latest") or b"")
    assert latest == {"format": "flashwright.latest/1", "name": "step-00000011"}
    restored = store.restore(10)
    assert restored == tmp_path / "fast" / "step-00000010"
    assert (restored / "model.pt").read_text() == "weights 10"
    assert (restored / "shards" / "0").read_bytes() == bytes(range(256)) * 64
    with pytest.raises(flashwright.Refused, match="reading"):
        store.evict(10)
    store.release(10)
    store.evict(10)
    assert not restored.exists()
    with pytest.raises(flashwright.InvalidRequest, match="no such checkpoint"):
        store.restore(9)
    with pytest.raises(flashwright.Refused, match="not written over"):
        write(store, 10)


def test_what_was_drained_is_known_to_the_next_who_opens_the_store(open_remote: Open, tmp_path: Path) -> None:
    store = open_remote(keep_fast=0)
    write(store, 1)
    store.wait()
    store.close()
    looking = open_remote(read_only=True)
    assert (looking.latest(), looking.steps()) == (1, [flashwright.Step(1, fast=False, slow=True)])
    with pytest.raises(flashwright.Refused, match="slow tier alone"):
        looking.restore(1)
    # Another host, which has nothing but the bucket.
    other = open_remote(state=tmp_path / "state")
    assert (other.restore() / "model.pt").read_text() == "weights 1"


def test_rot_is_found_on_either_tier(open_remote: Open, server: Server, tmp_path: Path) -> None:
    store = open_remote(keep_fast=None)
    write(store, 5)
    store.wait()
    model = tmp_path / "fast" / "step-00000005" / "model.pt"
    times = model.stat()
    model.write_text("Weights 5")
    os.utime(model, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (store.restore(5) / "model.pt").read_text() == "weights 5"
    store.release(5)
    store.evict(5)
    server.request("PUT", "step-00000005/model.pt", b"Weights 5")
    with pytest.raises(flashwright.Failed, match="model.pt"):
        store.restore(5)
    assert not model.exists()


def test_a_set_in_the_way_fails_the_drain_which_is_told_and_tried_again(
    open_remote: Open, server: Server
) -> None:
    store = open_remote()
    server.request("PUT", "step-00000007/model.pt", b"theirs")
    write(store, 7)
    with pytest.raises(flashwright.DrainFailed, match="belongs to no set"):
        store.wait(7)
    server.request("DELETE", "step-00000007/model.pt")
    assert store.retry() == 1
    store.wait(7)
    assert server.request("GET", "step-00000007/model.pt") == b"weights 7"


def test_a_fork_lets_go_of_a_store_in_a_bucket(open_remote: Open) -> None:
    store = open_remote()
    write(store, 1)
    store.wait()
    pid = os.fork()
    if pid == 0:
        del store
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    write(store, 2)
    store.wait(2)


def test_a_bucket_that_cannot_be_reached_is_told_when_the_store_is_opened(open_remote: Open, server: Server) -> None:
    with pytest.raises(flashwright.Failed, match="nowhere"):
        open_remote(slow=server.url().replace(f"s3://{BUCKET}", "s3://nowhere"))
    with pytest.raises(flashwright.InvalidRequest, match="looks like a URL") as wrong:
        open_remote(slow=Path("s3://bucket/run"))
    assert "./NAME" in str(wrong.value.hint)

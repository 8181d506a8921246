from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import flashwright
import pytest

Open = Callable[..., flashwright.Store]


@pytest.fixture
def tiers(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "fast", tmp_path / "slow"


@pytest.fixture
def open_store(tiers: tuple[Path, Path]) -> Iterator[Open]:
    """Opens stores over the two tiers, and closes what a test leaves open."""
    opened: list[flashwright.Store] = []

    def open_one(**options: object) -> flashwright.Store:
        store = flashwright.Store(tiers[0], tiers[1], **options)  # type: ignore[arg-type]
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        try:
            store.close()
        except flashwright.Error:
            pass


def write(store: flashwright.Store, step: int, text: str = "weights") -> None:
    with store.checkpoint(step) as directory:
        (directory / "model.pt").write_text(f"{text} {step}")
        (directory / "shards").mkdir()
        (directory / "shards" / "0").write_bytes(bytes(range(256)) * 64)

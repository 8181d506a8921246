"""A checkpoint plugin for Lightning: its checkpoints go to a store (docs/pytorch.md).

    store = flashwright.Store("/local/ckpt", "/lustre/me/ckpt")
    trainer = Trainer(plugins=[StoreCheckpointIO(store)], callbacks=[ModelCheckpoint(every_n_train_steps=100, save_top_k=-1)])
    trainer.fit(model, ckpt_path="newest" if store.latest("local") is not None else None)
"""

from pathlib import Path

import flashwright
import torch
from pytorch_lightning.plugins.io import CheckpointIO


class StoreCheckpointIO(CheckpointIO):
    """The step is the trainer's global step; what is on which tier is the store's matter, and so is what is removed."""

    def __init__(self, store: flashwright.Store) -> None:
        self.store = store

    def save_checkpoint(self, checkpoint, path, storage_options=None) -> None:
        step = checkpoint["global_step"]
        if step not in {known.step for known in self.store.steps()}:
            with self.store.checkpoint(step) as directory:
                torch.save(checkpoint, directory / "lightning.ckpt")

    def load_checkpoint(self, path, map_location=None, weights_only=None):
        name = Path(path).stem
        step = int(name.rsplit("step=", 1)[1].split("-")[0]) if "step=" in name else None
        return torch.load(self.store.restore(step) / "lightning.ckpt", map_location=map_location, weights_only=False)

    def remove_checkpoint(self, path) -> None:
        """The store's keep_fast and keep_slow decide."""

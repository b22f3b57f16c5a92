"""A program for PyTorch Lightning that knows nothing of Spool: fit with torchmetrics and a checkpoint, test, resume.

usage: lightning_fit.py FOLDER [--cpu]     prints a JSON line: losses, metrics, the resumed run's
"""

import json
import sys
import warnings

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

CLASSES = 4


class Classifier(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 24), nn.LayerNorm(24), nn.SiLU(), nn.Linear(24, CLASSES))
        scores = {"accuracy": MulticlassAccuracy(CLASSES), "f1": MulticlassF1Score(CLASSES)}
        self.scores = MetricCollection(scores)
        self.mean_loss = MeanMetric()
        self.losses: list[torch.Tensor] = []

    def training_step(self, batch, index):
        inputs, labels = batch
        loss = nn.functional.cross_entropy(self.body(inputs), labels)
        self.mean_loss.update(loss)
        self.losses.append(loss.detach())
        return loss

    def on_train_epoch_end(self) -> None:
        self.log("train_loss", self.mean_loss.compute())
        self.mean_loss.reset()

    def validation_step(self, batch, index) -> None:
        inputs, labels = batch
        self.scores.update(self.body(inputs), labels)

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.scores.compute())
        self.scores.reset()

    def configure_optimizers(self):
        optimiser = torch.optim.Adam(self.parameters(), lr=0.02)
        return [optimiser], [torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)]


def fit(folder: str, cpu: bool, epochs: int, resume: str | None = None) -> tuple[Classifier, pl.Trainer]:
    pl.seed_everything(2, verbose=False)
    inputs = torch.randn(40, 10)
    labels = inputs[:, :CLASSES].argmax(1)
    model = Classifier()
    options = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        accelerator="cpu" if cpu else "tpu",  # what Lightning calls every XLA device
        devices=1,
        max_epochs=epochs,
        default_root_dir=folder,
        gradient_clip_val=1.0,
        num_sanity_val_steps=0,
        callbacks=[pl.callbacks.ModelCheckpoint(dirpath=folder, filename="{epoch}", save_top_k=-1)],
        **options,
    )
    dataset = TensorDataset(inputs, labels)
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(dataset, batch_size=8, shuffle=True, generator=generator)
    trainer.fit(model, loader, DataLoader(dataset, batch_size=16), ckpt_path=resume)
    return model, trainer


def outcome(model: Classifier, trainer: pl.Trainer) -> dict[str, object]:
    return {
        "losses": [loss.item() for loss in model.losses],
        "metrics": {name: value.item() for name, value in trainer.callback_metrics.items()},
        "device": trainer.strategy.root_device.type,
    }


def main() -> None:
    warnings.filterwarnings("ignore")  # Lightning's advice on workers of loaders
    folder, cpu = sys.argv[1], "--cpu" in sys.argv
    whole = fit(folder, cpu, epochs=3)
    resumed = fit(folder, cpu, epochs=3, resume=f"{folder}/epoch=1.ckpt")
    print(json.dumps([outcome(*whole), outcome(*resumed)]))


if __name__ == "__main__":
    main()

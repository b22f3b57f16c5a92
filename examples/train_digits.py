#!/usr/bin/env python
"""Train a small convolutional net on scikit-learn's handwritten digits, on Spool's device or on the CPU.

Writes a curve of loss and accuracy (PNG) and a checkpoint. `--check CHECKPOINT` loads a checkpoint in a
process of its own and says whether its predictions on the test set are those that were saved. Both devices
run the same kernels in the same order from the same weights and batches, so that they print the same losses.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path

import matplotlib
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

matplotlib.use("Agg")  # a file is written, no window opened
import matplotlib.pyplot as plt

SPLIT_SEED = 0  # not an option: a checkpoint's test set must be the same one in every process


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--device", choices=("spool", "cpu"), default="spool", help="where to train; cpu is eager PyTorch"
    )
    parser.add_argument("--epochs", type=int, default=15, metavar="N")
    parser.add_argument("--batch-size", type=int, default=64, metavar="N")
    parser.add_argument(
        "--lr", type=float, default=0.05, help="highest learning rate; it follows one cosine down to 0"
    )
    parser.add_argument("--seed", type=int, default=0, help="fixes the weights and the order of the samples")
    parser.add_argument(
        "--curve", type=Path, default=Path("digits_curve.png"), metavar="PNG", help="where the curve goes"
    )
    parser.add_argument(
        "--checkpoint", type=Path, default=Path("digits.pt"), metavar="FILE", help="where the checkpoint goes"
    )
    parser.add_argument(
        "--losses",
        type=Path,
        metavar="JSON",
        help="also write every step's loss and every epoch's accuracy here",
    )
    parser.add_argument(
        "--check",
        type=Path,
        metavar="CHECKPOINT",
        help="train nothing: compare predictions with CHECKPOINT's",
    )
    args = parser.parse_args()
    if args.epochs < 1 or args.batch_size < 2:
        parser.error(f"expected --epochs >= 1 and --batch-size >= 2, got {args.epochs} and {args.batch_size}")
    return args


def digits() -> tuple[TensorDataset, Tensor, Tensor]:
    """The training set, and the test set's images [360, 1, 8, 8] in 0..1 and labels [360]."""
    data = load_digits()
    parts = train_test_split(
        data.images, data.target, test_size=360, stratify=data.target, random_state=SPLIT_SEED
    )
    train_x, test_x = (torch.tensor(part, dtype=torch.float32).unsqueeze(1) / 16 for part in parts[:2])
    train_y, test_y = (torch.tensor(part) for part in parts[2:])
    return TensorDataset(train_x, train_y), test_x, test_y


def build() -> nn.Sequential:
    """[N, 1, 8, 8] -> [N, 10] logits."""

    def block(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(
        *block(1, 16), *block(16, 32), nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
    )


class Target:
    """The device that was asked for, and the region in which one step is recorded there."""

    def __init__(self, name: str) -> None:
        if name == "spool":
            import torch_spool

            self.device, self.region = torch_spool.device(), torch_spool.step
        else:
            self.device, self.region = torch.device("cpu"), contextlib.nullcontext


def logits(model: nn.Module, images: Tensor, target: Target) -> Tensor:
    """MODEL's outputs for IMAGES, in evaluation mode, on the host."""
    model.eval()
    with torch.no_grad(), target.region():
        out = model(images.to(target.device))
    return out.cpu()


def train(args: argparse.Namespace) -> None:
    target = Target(args.device)
    train_set, test_x, test_y = digits()
    torch.manual_seed(args.seed)
    model = build().to(target.device)
    order = torch.Generator().manual_seed(args.seed)
    loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True, generator=order)
    if not len(loader):
        sys.exit(
            f"[train_digits] expected a batch size of at most {len(train_set)} (the training set), "
            f"got {args.batch_size}: lower --batch-size"
        )
    optimiser = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, args.epochs * len(loader))
    criterion = nn.CrossEntropyLoss()

    print(
        f"digits on {target.device}: {len(train_set)} to train, {len(test_y)} to test, "
        f"{args.epochs} epochs of {len(loader)} steps"
    )
    losses: list[float] = []
    accuracies: list[float] = []
    with tqdm(total=args.epochs * len(loader), unit="step", desc="train") as bar:
        for epoch in range(1, args.epochs + 1):
            model.train()
            pending = []
            for images, labels in loader:
                with target.region():
                    optimiser.zero_grad()
                    loss = criterion(model(images.to(target.device)), labels.to(target.device))
                    loss.backward()
                    optimiser.step()
                schedule.step()  # the rate is a number, not structure: changing it compiles nothing
                pending.append(loss.detach())
                bar.update()
            # Read once an epoch: until here the host was free to run ahead of the device.
            losses += torch.stack(pending).tolist()
            predictions = logits(model, test_x, target)
            accuracies.append((predictions.argmax(1) == test_y).float().mean().item())
            mean = sum(losses[-len(loader) :]) / len(loader)
            tqdm.write(
                f"epoch {epoch}, loss {mean:.9g}, last {losses[-1]:.9g}, "
                f"test accuracy {100 * accuracies[-1]:.2f} %"
            )

    plot(args.curve, losses, accuracies)
    state = {
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "schedule": schedule.state_dict(),
        "logits": predictions,
    }
    torch.save(state, args.checkpoint)
    print(f"curve written to {args.curve}, checkpoint to {args.checkpoint}")
    if args.losses:
        # A float32 as JSON's decimal reads back to the same bits, so that files of two runs can be compared
        # for equality.
        record = {"device": args.device, "losses": losses, "test_accuracy": accuracies}
        args.losses.write_text(json.dumps(record, indent=1) + "\n")
        print(f"losses written to {args.losses}")
    print(f"test accuracy {100 * accuracies[-1]:.2f} %")


def plot(path: Path, losses: list[float], accuracies: list[float]) -> None:
    """Loss by step (logarithmic, left) and test accuracy by epoch (right) into one PNG."""
    figure, left = plt.subplots(figsize=(8, 4.5), layout="constrained")
    right = left.twinx()
    epoch_steps = len(losses) // len(accuracies)
    left.semilogy(range(1, len(losses) + 1), losses, color="tab:blue", linewidth=1)
    right.plot(
        range(epoch_steps, len(losses) + 1, epoch_steps),
        [100 * a for a in accuracies],
        "o-",
        color="tab:orange",
    )
    left.set(xlabel="step", title="Handwritten digits")
    left.set_ylabel("training loss", color="tab:blue")
    right.set_ylabel("test accuracy, %", color="tab:orange")
    left.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def check(args: argparse.Namespace) -> int:
    """Compare the checkpoint's predictions with those of its weights in this process; the exit status."""
    target = Target(args.device)
    state = torch.load(args.check, map_location="cpu")
    model = build().to(target.device)
    model.load_state_dict(state["model"])
    _, test_x, test_y = digits()
    now, saved = logits(model, test_x, target), state["logits"]
    same = int((now.argmax(1) == saved.argmax(1)).sum())
    accuracy = (now.argmax(1) == test_y).float().mean().item()
    verdict = "the same" if same == len(test_y) else "NOT the same"
    print(
        f"predictions are {verdict}: {same} of {len(test_y)} agree, "
        f"largest difference of a logit {(now - saved).abs().max():.3g}"
    )
    print(f"test accuracy {100 * accuracy:.2f} %")
    return 0 if same == len(test_y) else 1


def main() -> int:
    args = parse_args()
    if args.check:
        return check(args)
    train(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python
"""Does a long run grow? Many steps of a small net, with memory, slots, cache entries and compiles sampled.

The net is a convolutional one with SGD (2 000 steps) or, with --net transformer, two layers of attention with dropout
and AdamW (10 000 steps).

The learning rate changes in every step and the loss is read at every sample, as real programs do. Spool and
eager each run in a process of their own, since resident memory belongs to a process. Growth is the difference
between the run's last quarter and its second (the first warms up): medians for memory, which breathes; the
largest values for slots and cache entries, which must not.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

import common

MIB = 1 << 20


def conv(device: Any) -> common.Trainer:
    """A small convolutional classifier, SGD with momentum."""
    import torch
    from torch import nn

    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(1024, 10),
    )
    images, labels = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
    return common.Trainer(net, images, labels, nn.functional.cross_entropy, device)


def transformer(device: Any) -> common.Trainer:
    """Two layers of attention over 16 tokens, dropout, AdamW."""
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    net = nn.Sequential(nn.Embedding(50, 32), encoder, nn.Flatten(), nn.Linear(16 * 32, 50))
    tokens, labels = torch.randint(50, (8, 16)), torch.randint(50, (8,))
    trainer = common.Trainer(net, tokens, labels, nn.functional.cross_entropy, device)
    trainer.optimiser = torch.optim.AdamW(trainer.model.parameters(), lr=1e-3)
    return trainer


NETS = {"conv": conv, "transformer": transformer}
STEPS = {"conv": 2000, "transformer": 10_000}


def child(args: argparse.Namespace) -> None:
    """Train args.steps steps on args.child (spool or eager) and hand back the samples."""
    import torch

    if args.child == "spool":
        import torch_spool
        from torch_spool import _C
        from torch_spool.debug import metrics

        device, wrap, wait = torch_spool.device(), common.in_step, torch_spool.wait_device_ops
    else:
        device, wrap, wait = torch.device("cpu"), lambda body: body, lambda: None

    torch.manual_seed(0)
    trainer = NETS[args.net](device)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(trainer.optimiser, args.steps)
    run = wrap(trainer.body)
    samples: list[dict[str, Any]] = []
    for step in tqdm(range(1, args.steps + 1), unit="step", desc=args.child, leave=False):
        loss = run()
        schedule.step()
        if step % args.every == 0:
            wait()
            sample = {"step": step, "loss": loss.item(), "rss": common.resident_bytes()}
            if args.child == "spool":
                sample |= {"slots": _C.live_slots(), "cache": _C.cache_size()}
                sample["compiles"] = metrics.counter_value("UncachedCompile")
            samples.append(sample)
    common.child_result(samples)


def quarters(samples: list[dict[str, Any]], key: str) -> tuple[list[float], list[float]]:
    """KEY's values in the second and in the last quarter of the run."""
    size = len(samples) // 4
    values = [sample[key] for sample in samples]
    return values[size : 2 * size], values[-size:]


def growth(samples: list[dict[str, Any]], key: str) -> float:
    early, late = quarters(samples, key)
    pick = statistics.median if key == "rss" else max
    return pick(late) - pick(early)


def plot(path: Path, runs: dict[str, list[dict[str, Any]]]) -> None:
    """Memory of both runs, and Spool's slots and cache entries, by step."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 1, figsize=(8, 7), sharex=True, layout="constrained")
    for name, samples in runs.items():
        axes[0].plot([s["step"] for s in samples], [s["rss"] / MIB for s in samples], label=name)
    axes[0].legend()
    steps = [s["step"] for s in runs["spool"]]
    axes[1].plot(steps, [s["slots"] for s in runs["spool"]])
    axes[2].plot(steps, [s["cache"] for s in runs["spool"]])
    for axis, label in zip(axes, ("resident memory, MiB", "live slots", "cache entries")):
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
        axis.set_ylim(bottom=0)
    axes[2].set_xlabel("step")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"plot written to {path}")


def main() -> int:
    cli = common.parser(__doc__)
    cli.add_argument("--net", choices=NETS, default="conv", help="what to train (default conv)")
    cli.add_argument(
        "--steps", type=int, metavar="N", help="steps to train (default 2000; transformer 10000)"
    )
    cli.add_argument("--every", type=int, metavar="N", help="steps between two samples (default 25)")
    cli.add_argument("--plot", type=Path, metavar="PNG", help="also draw the samples to PNG")
    args = cli.parse_args()
    args.steps = args.steps or (200 if args.quick else STEPS[args.net])
    args.every = args.every or (10 if args.quick else 25)
    if args.steps < 8 * args.every:
        cli.error(
            f"expected --steps to be at least 8 times --every (two samples a quarter), "
            f"got {args.steps} and {args.every}"
        )
    if args.child:
        child(args)
        return 0

    options = ("--net", args.net, "--steps", str(args.steps), "--every", str(args.every))
    runs = {case: common.run_child(case, *options) for case in ("eager", "spool")}

    rows = []
    for case, samples in runs.items():
        rows.append(
            (
                case,
                "resident memory",
                f"{samples[0]['rss'] / MIB:.1f} MiB",
                f"{growth(samples, 'rss') / MIB:+.2f} MiB",
            )
        )
    for key, label in (("slots", "live slots"), ("cache", "cache entries"), ("compiles", "compiles")):
        rows.append(("spool", label, f"{runs['spool'][0][key]}", f"{growth(runs['spool'], key):+.0f}"))
    print(f"{args.steps} steps, net {args.net}, a sample every {args.every}")
    common.print_table(("process", "of", "at first", "growth, second to last quarter"), rows)
    final = {case: samples[-1]["loss"] for case, samples in runs.items()}
    print(f"last loss: eager {final['eager']:.9g}, Spool {final['spool']:.9g}")
    if args.plot:
        plot(args.plot, runs)

    # A page more or less is the allocator's breathing; 1 % over 1 000 steps would be a leak of a few bytes an
    # op.
    early, late = quarters(runs["spool"], "rss")
    memory = 100 * (statistics.median(late) / statistics.median(early) - 1)
    figures = [
        common.Figure(f"{args.steps} steps, growth of memory", memory, "%", "<", 1.0),
        common.Figure(
            f"{args.steps} steps, growth of live slots", growth(runs["spool"], "slots"), "slots", "<=", 0
        ),
        common.Figure(
            f"{args.steps} steps, growth of the cache", growth(runs["spool"], "cache"), "entries", "<=", 0
        ),
        common.Figure(
            f"{args.steps} steps, compiles after step {args.every}",
            runs["spool"][-1]["compiles"] - runs["spool"][0]["compiles"],
            "compiles",
            "<=",
            0,
        ),
    ]
    return common.conclude(args, figures, runs)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python
"""Train ResNet-50 on fake data, on Spool's device or on the CPU.

Every iteration is one `with torch_spool.step():` region: what is recorded in it becomes one graph, which is
compiled in the first iteration and reused in all later ones. Every 10 steps, and at the last, the loss is
printed twice: read outside the region with a plain `item()`, and by a step closure, which runs once the step
has been launched.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm

from models.resnet import resnet50

LOG_EVERY = 10


class RateMeter:
    """Samples per second since restart(). Honest only if the caller waits for the device before it asks."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.samples = 0
        self.start = time.perf_counter()

    def add(self, samples: int) -> None:
        self.samples += samples

    def rate(self) -> float:
        return self.samples / (time.perf_counter() - self.start)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--device", choices=("spool", "cpu"), default="spool", help="where to train; cpu is eager PyTorch"
    )
    parser.add_argument("--batch-size", type=int, default=8, metavar="N", help="samples in a batch")
    parser.add_argument(
        "--image-size",
        type=int,
        default=224,
        metavar="PIXELS",
        help="height and width of an image, at least 32",
    )
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="steps in an epoch")
    parser.add_argument("--epochs", type=int, default=1, metavar="N")
    parser.add_argument("--classes", type=int, default=1000, metavar="N")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of SGD, whose momentum is 0.9")
    parser.add_argument("--seed", type=int, default=0, help="fixes the weights and the fake data")
    parser.add_argument("--channels-last", action="store_true", help="keep images and weights in NHWC order")
    parser.add_argument(
        "--profile",
        nargs="?",
        type=Path,
        const=Path("resnet_trace.json"),
        metavar="FILE",
        help="write a Chrome trace to FILE (resnet_trace.json if none is named) and print the metrics report",
    )
    args = parser.parse_args()
    for name, least in (("batch_size", 1), ("image_size", 32), ("steps", 1), ("epochs", 1), ("classes", 1)):
        if getattr(args, name) < least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}, got {getattr(args, name)}")
    # Batch norm needs two values a channel; the last stage has shrunk the image by 32.
    if args.batch_size == 1 and args.image_size <= 32:
        parser.error(
            "one sample of 32 pixels leaves batch norm a single value: raise --batch-size or --image-size"
        )
    return args


def train(args: argparse.Namespace) -> None:
    spool = None
    if args.device == "spool":
        import torch_spool as spool

    device = spool.device() if spool else torch.device("cpu")
    region = spool.step if spool else contextlib.nullcontext

    def wait() -> None:
        """Return once all that was launched is done (eager work always is)."""
        if spool:
            spool.synchronize()

    # Weights and data are made on the CPU, so that every device starts from the same numbers.
    torch.manual_seed(args.seed)
    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    model = resnet50(args.classes).to(memory_format=layout).to(device)
    images = (
        torch.randn(args.batch_size, 3, args.image_size, args.image_size).to(memory_format=layout).to(device)
    )
    labels = torch.randint(args.classes, (args.batch_size,)).to(device)
    criterion = nn.CrossEntropyLoss()
    optimiser = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    def report_from_closure(epoch: int, step: int, loss: torch.Tensor) -> None:
        tqdm.write(f"epoch {epoch}, step {step}, loss {loss.item():.6g}, read by a step closure")

    total = args.epochs * args.steps
    size = f"{args.image_size} x {args.image_size}"
    print(f"ResNet-50 on {device}, batch {args.batch_size}, {size}, {total} steps", flush=True)
    model.train()
    meter = RateMeter()
    with tqdm(total=total, unit="step", desc="train") as bar:
        for epoch in range(1, args.epochs + 1):
            for step in range(1, args.steps + 1):
                log = step % LOG_EVERY == 0 or step == args.steps
                with region():
                    optimiser.zero_grad()
                    loss = criterion(model(images), labels)
                    loss.backward()
                    optimiser.step()
                    if log and spool:
                        spool.add_step_closure(report_from_closure, args=(epoch, step, loss.detach()))
                meter.add(args.batch_size)
                bar.update()
                if log:
                    wait()
                    rate = meter.rate()
                    tqdm.write(
                        f"epoch {epoch}, step {step}, loss {loss.item():.6g}, rate {rate:.2f} samples/s"
                    )
                    meter.restart()
                elif bar.n == 1:
                    # The first step compiles and allocates: it is told apart, so that it does not pull down
                    # the first rate.
                    wait()
                    tqdm.write(f"first step took {time.perf_counter() - meter.start:.2f} s")
                    meter.restart()


def main() -> None:
    args = parse_args()
    if args.profile is None:
        train(args)
        return

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        train(args)
    profiler.export_chrome_trace(str(args.profile))
    print(f"trace written to {args.profile} (open it in chrome://tracing or ui.perfetto.dev)")
    if args.device == "spool":
        from torch_spool.debug import metrics

        print(metrics.metrics_report())
    else:
        print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=15))


if __name__ == "__main__":
    main()

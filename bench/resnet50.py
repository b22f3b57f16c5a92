#!/usr/bin/env python
"""ResNet-50's training step: Spool with step(), with a bare sync(), eager PyTorch in both of its layouts and, with
--inductor, torch.compile.

First, fresh processes take turns for what only a fresh process shows: the time of the first step (compile
included) and the peak of resident memory. Then the variants take turns in this process for the time of a warm
step.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from tqdm import tqdm

import common

MIB = 1 << 20


def channels_last(trainer: common.Trainer) -> common.Trainer:
    """TRAINER with its model and batch in PyTorch's channels-last layout."""
    import torch

    trainer.model = trainer.model.to(memory_format=torch.channels_last)
    trainer.x = trainer.x.to(memory_format=torch.channels_last)
    return trainer


def inductor(trainer: common.Trainer) -> common.Trainer:
    """TRAINER with its model compiled by torch.compile."""
    import torch

    trainer.model = torch.compile(trainer.model)
    return trainer


def child(args: argparse.Namespace) -> None:
    """In a fresh process (args.child: a case): the first step's seconds, and the peak of memory."""
    import torch

    if args.child != "spool":
        trainer = common.resnet_trainer(torch.device("cpu"), args.batch, args.image)
        variant = common.Variant((inductor(trainer) if args.child == "inductor" else trainer).body)
    else:
        import torch_spool

        trainer = common.resnet_trainer(torch_spool.device(), args.batch, args.image)
        torch_spool.sync(wait=True)  # moving the model is not part of the first step
        variant = common.Variant(common.in_step(trainer.body), torch_spool.wait_device_ops)
    start = time.perf_counter()
    variant.step()
    variant.finish()
    first = time.perf_counter() - start
    for _ in range(args.fresh_steps - 1):
        variant.step()
    variant.finish()
    common.child_result({"first_step_s": first, "peak_bytes": common.peak_bytes()})


def fresh_processes(args: argparse.Namespace, turns: int) -> dict[str, list[dict[str, float]]]:
    options = ["--batch", str(args.batch), "--image", str(args.image), "--fresh-steps", str(args.fresh_steps)]
    samples: dict[str, list[dict[str, float]]] = {"eager": [], "spool": []}
    if args.inductor:
        samples["inductor"] = []
    with tqdm(total=len(samples) * turns, unit="process", leave=False) as bar:
        for index in range(turns):
            for case in list(samples) if index % 2 == 0 else reversed(samples):
                bar.set_description(f"fresh process, {case}")
                samples[case].append(common.run_child(case, *options))
                bar.update()
    return samples


def main() -> int:
    cli = common.parser(__doc__)
    cli.add_argument("--batch", type=int, metavar="N", help="samples in the batch (default 8)")
    cli.add_argument("--image", type=int, metavar="PIXELS", help="height and width of an image (default 224)")
    cli.add_argument(
        "--rounds", type=int, metavar="N", help="rounds in which every variant takes its turn (default 10)"
    )
    cli.add_argument("--steps", type=int, metavar="N", help="steps in a turn (default 2)")
    cli.add_argument("--fresh", type=int, metavar="N", help="fresh processes of each kind (default 3)")
    cli.add_argument("--fresh-steps", type=int, metavar="N", help="steps in a fresh process (default 4)")
    cli.add_argument(
        "--inductor", action="store_true", help="torch.compile as well: its first step takes a minute or more"
    )
    args = cli.parse_args()
    small = args.quick
    args.batch = args.batch or (2 if small else 8)
    args.image = args.image or (64 if small else 224)
    args.fresh_steps = args.fresh_steps or (2 if small else 4)
    if args.child:
        child(args)
        return 0
    rounds, steps = args.rounds or (3 if small else 10), args.steps or (1 if small else 2)

    fresh = fresh_processes(args, args.fresh or (1 if small else 3))

    import torch

    import torch_spool

    def on_cpu() -> common.Trainer:
        return common.resnet_trainer(torch.device("cpu"), args.batch, args.image)

    stepped = common.resnet_trainer(torch_spool.device(), args.batch, args.image)
    synced = common.resnet_trainer(torch_spool.device(), args.batch, args.image)
    torch_spool.sync(wait=True)
    variants = {
        "eager": common.Variant(on_cpu().body),
        "eager, channels last": common.Variant(channels_last(on_cpu()).body),
        "Spool, step()": common.Variant(common.in_step(stepped.body), torch_spool.wait_device_ops),
        "Spool, sync()": common.Variant(common.then_sync(synced.body), torch_spool.wait_device_ops),
    }
    if args.inductor:
        variants["torch.compile"] = common.Variant(inductor(on_cpu()).body)
    seconds = common.alternate(variants, rounds, steps, warm_up=2)

    print(
        f"ResNet-50, batch {args.batch}, {args.image} x {args.image}, SGD with momentum: time of a warm step"
    )
    rates = {name: args.batch / statistics.median(values) for name, values in seconds.items()}
    rows = [(*row, f"{rates[row[0]]:.2f}") for row in common.time_rows(seconds, "eager")]
    common.print_table(("variant", "median", "rounds", "over eager's", "samples/s"), rows)

    def values(case: str, key: str) -> list[float]:
        return [sample[key] for sample in fresh[case]]

    print("\nfresh processes")
    rows = [
        (
            case,
            common.duration(statistics.median(values(case, "first_step_s"))),
            f"{statistics.median(values(case, 'peak_bytes')) / MIB:.0f} MiB",
        )
        for case in fresh
    ]
    common.print_table(("process", "first step", "peak memory"), rows)

    first = [
        ours - theirs
        for ours, theirs in zip(values("spool", "first_step_s"), values("eager", "first_step_s"))
    ]
    peak = common.ratio(values("spool", "peak_bytes"), values("eager", "peak_bytes"))
    figures = [
        # A rate is the inverse of a time, so that eager's time stands above.
        common.Figure(
            "ResNet-50, Spool's rate over eager's",
            common.ratio(seconds["eager"], seconds["Spool, step()"]),
            "x",
            ">=",
            1.25,
        ),
        common.Figure(
            "ResNet-50, Spool's rate over eager's in channels last",
            common.ratio(seconds["eager, channels last"], seconds["Spool, step()"]),
            "x",
            ">=",
            1.15,
        ),
        common.Figure(
            "ResNet-50, rate with step() over a bare sync()",
            common.ratio(seconds["Spool, sync()"], seconds["Spool, step()"]),
            "x",
            ">=",
            0.99,
        ),
        common.Figure(
            "ResNet-50, first step's time beyond eager's", statistics.median(first), "s", "<=", 1.0
        ),
        common.Figure("ResNet-50, peak memory over eager's", peak, "x", "<=", 0.9),
    ]
    return common.conclude(args, figures, {"warm_step_s": seconds, "fresh": fresh})


if __name__ == "__main__":
    sys.exit(main())

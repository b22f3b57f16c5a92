#!/usr/bin/env python
"""What explaining costs.

Trains a 20-layer MLP. Counts the processor time that the recording thread spends on a step, with `explain()` off
and on, in one process and in turns; a third variant, off as well, shows how far two equal ones lie apart.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time

from tqdm import tqdm

import common


def main() -> int:
    cli = common.parser(__doc__)
    cli.add_argument(
        "--rounds", type=int, metavar="N", help="rounds in which each takes its turn (default 25)"
    )
    cli.add_argument("--steps", type=int, metavar="N", help="steps in a turn (default 20)")
    args = cli.parse_args()
    rounds = args.rounds or (3 if args.quick else 25)
    steps = args.steps or (5 if args.quick else 20)

    import torch_spool

    trainer = common.mlp_trainer(torch_spool.device())
    run = common.in_step(trainer.body)

    def turn(explained: bool) -> float:
        """Seconds of the recording thread a step."""
        with torch_spool.explain() if explained else contextlib.nullcontext():
            run()  # what is done once, when a report sees a graph for the first time, is no part of a step
            torch_spool.wait_device_ops()
            spent = 0.0
            for _ in range(steps):
                start = time.thread_time()
                run()
                spent += time.thread_time() - start
                # The plan must not compete for the cores with the next step's recording.
                torch_spool.wait_device_ops()
        return spent / steps

    variants = {"off": False, "off again": False, "on": True}
    samples: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(5):
        run()
    for explained in variants.values():
        turn(explained)
    for index in tqdm(range(rounds), unit="round", leave=False):
        names = list(variants)
        for name in names[index % 3 :] + names[: index % 3]:
            samples[name].append(turn(variants[name]))

    def ratio(name: str) -> float:
        return statistics.median(a / b for a, b in zip(samples[name], samples["off"], strict=True))

    print(
        "20-layer MLP, width 64, batch 32, SGD with momentum: processor time of the recording thread, a step"
    )
    common.print_table(
        ("explain()", "a step", "over off"),
        [
            (name, common.duration(statistics.median(samples[name])), f"{100 * (ratio(name) - 1):+.1f} %")
            for name in variants
        ],
    )
    figures = [common.Figure("recording with explain() on over off", ratio("on"), "x", "<", 1.2)]
    return common.conclude(args, figures, samples)


if __name__ == "__main__":
    sys.exit(main())

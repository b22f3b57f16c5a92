#!/usr/bin/env python
"""What recording one operation costs.

Trains a 20-layer MLP and reads the recorder's own clock: the time it spends per recorded op when what is
recorded equals what followed last time (a known tape is followed by comparing) and when that is turned off
(geometry is inferred anew). Also prints the wall time of a recorded step's Python, of which the recorder is a
part. The two modes take turns.
"""

from __future__ import annotations

import statistics
import sys
import time

from tqdm import tqdm

import common


def main() -> int:
    cli = common.parser(__doc__)
    cli.add_argument(
        "--rounds", type=int, metavar="N", help="rounds in which both modes take their turn (default 15)"
    )
    cli.add_argument("--steps", type=int, metavar="N", help="steps in a turn (default 20)")
    args = cli.parse_args()
    rounds = args.rounds or (3 if args.quick else 15)
    steps = args.steps or (5 if args.quick else 20)

    import torch_spool
    from torch_spool import _C

    trainer = common.mlp_trainer(torch_spool.device())
    run = common.in_step(trainer.body)

    def turn(follow: bool, count: int) -> dict[str, float]:
        """Nanoseconds an op, ops a step, share of ops followed, and seconds of a step's Python."""
        _C.set_follow(follow)
        before, python = _C.recorder_stats(), 0.0
        for _ in range(count):
            with torch_spool.step():
                start = time.perf_counter()
                trainer.body()
                python += time.perf_counter() - start
            # The plan must not compete for the cores with the next step's recording.
            torch_spool.wait_device_ops()
        after = _C.recorder_stats()
        ops, followed, spent = (after[key] - before[key] for key in ("ops", "followed", "recorder_ns"))
        if ops <= 0:
            raise RuntimeError(
                f"[bench/recorder] expected recorded ops in {count} steps, got {ops}: is eager_mode on?"
            )
        return {
            "ns_per_op": spent / ops,
            "ops": ops / count,
            "followed": followed / ops,
            "step_s": python / count,
        }

    modes = {"known tape followed": True, "not followed": False}
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in modes}
    for _ in range(5):
        run()
    torch_spool.wait_device_ops()
    _C.set_recorder_timing(True)
    try:
        for follow in modes.values():
            turn(follow, 3)
        for index in tqdm(range(rounds), unit="round", leave=False):
            for name in list(modes) if index % 2 == 0 else reversed(modes):
                samples[name].append(turn(modes[name], steps))
    finally:
        _C.set_recorder_timing(False)
        _C.set_follow(True)

    def median(name: str, key: str) -> float:
        return statistics.median(sample[key] for sample in samples[name])

    rows = []
    for name in modes:
        costs = [sample["ns_per_op"] for sample in samples[name]]
        rows.append(
            (
                name,
                f"{median(name, 'ops'):.0f}",
                f"{100 * median(name, 'followed'):.1f} %",
                f"{median(name, 'ns_per_op') / 1000:.3f} µs",
                f"{min(costs) / 1000:.3f} .. {max(costs) / 1000:.3f} µs",
                common.duration(median(name, "ops") * median(name, "ns_per_op") * 1e-9),
                common.duration(median(name, "step_s")),
            )
        )
    print("20-layer MLP, width 64, batch 32, SGD with momentum")
    common.print_table(
        ("recording", "ops a step", "followed", "an op", "rounds", "recorder, a step", "whole recording"),
        rows,
    )
    figures = [
        common.Figure(
            "recorder, known tape followed",
            median("known tape followed", "ns_per_op") / 1000,
            "µs/op",
            "<",
            1.0,
        ),
        common.Figure(
            "recorder, tape not followed", median("not followed", "ns_per_op") / 1000, "µs/op", "<", 4.0
        ),
    ]
    return common.conclude(args, figures, samples)


if __name__ == "__main__":
    sys.exit(main())

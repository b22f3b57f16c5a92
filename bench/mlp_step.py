#!/usr/bin/env python
"""A training step of many small ops: Spool with step() against eager PyTorch.

A 20-layer MLP (width 64, batch 32, SGD with momentum), where a step's time is overhead far more than
arithmetic. Also measured: Spool when the loss is read in every step, which makes the host wait for the device
each time, and with --inductor torch.compile.
"""

from __future__ import annotations

import sys

import common


def main() -> int:
    cli = common.parser(__doc__)
    cli.add_argument(
        "--rounds", type=int, metavar="N", help="rounds in which every variant takes its turn (default 25)"
    )
    cli.add_argument("--steps", type=int, metavar="N", help="steps in a turn (default 40)")
    cli.add_argument("--layers", type=int, default=20, metavar="N", help="linear layers (default 20)")
    cli.add_argument("--width", type=int, default=64, metavar="N", help="features of a layer (default 64)")
    cli.add_argument("--batch", type=int, default=32, metavar="N", help="samples in the batch (default 32)")
    cli.add_argument(
        "--inductor", action="store_true", help="also measure torch.compile (it compiles for a minute or so)"
    )
    args = cli.parse_args()
    rounds = args.rounds or (3 if args.quick else 25)
    steps = args.steps or (5 if args.quick else 40)

    import torch

    import torch_spool

    shape = (args.layers, args.width, args.batch)
    eager = common.mlp_trainer("cpu", *shape)
    spool = common.mlp_trainer(torch_spool.device(), *shape)
    reading = common.mlp_trainer(torch_spool.device(), *shape)
    read_step = common.in_step(reading.body)
    variants = {
        "eager": common.Variant(eager.body),
        "Spool, step()": common.Variant(common.in_step(spool.body), torch_spool.wait_device_ops),
        "Spool, step(), loss read": common.Variant(lambda: read_step().item(), torch_spool.wait_device_ops),
    }
    if args.inductor:
        compiled = common.mlp_trainer("cpu", *shape)
        compiled.model = torch.compile(compiled.model)
        compiled.optimiser.step = torch.compile(compiled.optimiser.step)
        variants["torch.compile (inductor)"] = common.Variant(compiled.body)

    seconds = common.alternate(variants, rounds, steps, warm_up=10)
    print(f"{args.layers}-layer MLP, width {args.width}, batch {args.batch}, SGD with momentum: a whole step")
    common.print_table(("variant", "median", "rounds", "over eager's"), common.time_rows(seconds, "eager"))
    figures = [
        common.Figure(
            f"{args.layers}-layer MLP step, Spool's time over eager's",
            common.ratio(seconds["Spool, step()"], seconds["eager"]),
            "x",
            "<=",
            1.0,
        )
    ]
    return common.conclude(args, figures, seconds)


if __name__ == "__main__":
    sys.exit(main())

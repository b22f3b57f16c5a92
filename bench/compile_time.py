#!/usr/bin/env python
"""How compile time grows with the graph: 1 000, 10 000 and 100 000 recorded ops, each in a process of its own.

The graph repeats a block of element-wise ops, a sum over rows and a matrix product, so its kernels repeat as
those of a model's layers do. n log n allows a factor of 13.3 for ten times the ops.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
import time

import common

BLOCK = 10  # recorded ops a block


def child(case: str) -> None:
    """Compiles a graph of CASE ops; the result is the seconds that it took."""
    os.environ |= {"SPOOL_MAX_TAPE_OPS": str(1 << 40), "SPOOL_MAX_TAPE_BYTES": str(1 << 50)}
    import torch

    import torch_spool
    from torch_spool.debug import metrics

    x = torch.randn(16, 16).to(torch_spool.device())
    w = torch.randn(16, 16).to(torch_spool.device())
    (x + 1).sum().item()  # the compiler stands
    metrics.clear_all()
    start = time.perf_counter()
    y = x
    for _ in range(int(case) // BLOCK):
        z = torch.tanh(y * 0.5 + w)
        z = (z - z.sum(1, keepdim=True)).abs() * y
        y = torch.mm(z, w).clamp(-1, 1) + x
    recorded = time.perf_counter() - start
    torch_spool.sync(wait=True)
    samples, nanoseconds, _ = metrics.metric_data("CompileTime")
    common.child_result({"recorded": recorded, "compiled": nanoseconds / 1e9, "graphs": samples})


def main() -> int:
    cli = common.parser(__doc__)
    args = cli.parse_args()
    if args.child:
        child(args.child)
        return 0
    sizes = [100, 1000] if args.quick else [1000, 10_000, 100_000]
    found = {n: common.run_child(str(n)) for n in sizes}
    common.print_table(
        ["ops", "recorded", "compiled", "an op"],
        [
            (
                f"{n}",
                common.duration(r["recorded"]),
                common.duration(r["compiled"]),
                common.duration(r["compiled"] / n),
            )
            for n, r in found.items()
        ],
    )
    figures = []
    for small, large in itertools.pairwise(sizes):
        bound = large * math.log(large) / (small * math.log(small))
        grown = found[large]["compiled"] / found[small]["compiled"]
        figures.append(common.Figure(f"compile time, {small} to {large} ops", grown, "x", "<=", bound))
    return common.conclude(args, figures, {str(n): r for n, r in found.items()})


if __name__ == "__main__":
    sys.exit(main())

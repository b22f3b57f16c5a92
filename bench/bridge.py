#!/usr/bin/env python
"""What a call of an extracted graph costs beside running its plan.

Extracts graphs that read a few and many small tensors, and times the calls alone: from the call of the Python
function to its return, with the device idle before, so that the plan's own run is not in it. The calling thread's time
is counted, so that other work on the machine is not. Sizes take turns.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time

from tqdm import tqdm

import common

SIZES = (2, 100, 400)


def main() -> int:
    cli = common.parser(__doc__)
    cli.add_argument(
        "--rounds", type=int, metavar="N", help="rounds in which all sizes take their turn (default 15)"
    )
    cli.add_argument("--calls", type=int, metavar="N", help="calls in a turn (default 200)")
    args = cli.parse_args()
    rounds = args.rounds or (3 if args.quick else 15)
    calls = args.calls or (20 if args.quick else 200)

    import torch
    from torch import fx

    import torch_spool

    dev = torch_spool.device()

    def extracted(count: int):
        """A function of COUNT tensors that gives their sum, with such tensors."""
        graph = fx.Graph()
        inputs = [graph.placeholder(f"t{i}") for i in range(count)]
        graph.output((graph.call_function(torch.ops.aten.sum.dim_IntList, (
            graph.call_function(torch.ops.aten.stack.default, (inputs,)), [0])),))  # fmt: skip
        tensors = [torch.ones(4, device=dev) for _ in range(count)]
        torch_spool.sync(wait=True)
        return torch_spool.dynamo.extract_compiled_graph(fx.GraphModule({}, graph), tensors), tensors

    cases = {count: extracted(count) for count in SIZES}

    def turn(count: int, number: int) -> float:
        """Microseconds a call takes."""
        run, tensors = cases[count]
        spent = 0.0
        for _ in range(number):
            start = time.thread_time()
            out = run(*tensors)
            spent += time.thread_time() - start
            torch_spool.wait_device_ops()
            del out
        return spent / number * 1e6

    samples: dict[int, list[float]] = {count: [] for count in SIZES}
    for count in SIZES:
        turn(count, 20)
    for index in tqdm(range(rounds), unit="round", leave=False):
        for count in SIZES if index % 2 == 0 else reversed(SIZES):
            gc.collect()
            samples[count].append(turn(count, calls))

    rows = [
        (count, f"{statistics.median(values):.1f} µs", f"{min(values):.1f} .. {max(values):.1f} µs")
        for count, values in samples.items()
    ]
    common.print_table(("tensors", "a call", "rounds"), rows)
    figures = [
        common.Figure(
            f"bridge, a call with {count} tensors",
            statistics.median(values),
            "µs",
            "<=",
            15 + 0.1 * (count + 1),
        )
        for count, values in samples.items()
    ]
    return common.conclude(args, figures, {str(count): values for count, values in samples.items()})


if __name__ == "__main__":
    sys.exit(main())

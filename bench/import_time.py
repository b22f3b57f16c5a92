#!/usr/bin/env python
"""What `import torch_spool` adds to `import torch`.

Fresh processes, with and without the second import, take turns. The figure is the second import's own time in
the processes that have it: the difference between the two kinds, also printed, contains the noise of two
imports of PyTorch.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

from tqdm import tqdm

import common

TORCH = "import time; a = time.perf_counter(); import torch; b = time.perf_counter(); "
PROGRAMS = {
    "torch": TORCH + "print(b - a, 0.0)",
    "torch + torch_spool": TORCH + "import torch_spool; print(b - a, time.perf_counter() - b)",
}


def seconds(program: str) -> tuple[float, float]:
    """The times of `import torch` and of what comes after it, in a fresh process."""
    # Without PyTorch's autoload: an installed Spool must not be imported already within `import torch`.
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    first, second = done.stdout.split()[-2:]
    return float(first), float(second)


def main() -> int:
    cli = common.parser(__doc__)
    cli.add_argument("--rounds", type=int, metavar="N", help="processes of each kind (default 9)")
    args = cli.parse_args()
    rounds = args.rounds or (2 if args.quick else 9)

    for program in PROGRAMS.values():
        seconds(program)  # fills the disk's cache
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
    for index in tqdm(range(rounds), unit="round", leave=False):
        for name in list(PROGRAMS) if index % 2 == 0 else reversed(PROGRAMS):
            samples[name].append(seconds(PROGRAMS[name]))

    totals = {name: [sum(pair) for pair in pairs] for name, pairs in samples.items()}
    print("imports in a fresh process")
    common.print_table(("imported", "median", "rounds", "over torch's"), common.time_rows(totals, "torch"))
    medians = {name: statistics.median(values) for name, values in totals.items()}
    print(f"difference of the medians: {medians['torch + torch_spool'] - medians['torch']:.3f} s")
    added = statistics.median(second for _, second in samples["torch + torch_spool"])
    return common.conclude(
        args, [common.Figure("import torch_spool, on top of torch", added, "s", "<", 0.3)], samples
    )


if __name__ == "__main__":
    sys.exit(main())

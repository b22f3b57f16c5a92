#!/usr/bin/env python
"""The compiler's works: Spool against eager PyTorch and, with --inductor, torch.compile.

Every work runs in a process of its own, in which the variants take turns. It runs twice: with the system's
allocator as it is, and with one that keeps memory (MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ huge),
where eager PyTorch is spared the page faults of fresh allocations. The first call's time and the peak of
memory are measured in further processes, one for each variant.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import common

KEEP = {"MALLOC_MMAP_THRESHOLD_": str(1 << 40), "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


@dataclass
class Work:
    """One work: MAKE(device, size) gives its step; bounds are Spool's speed over eager's."""

    title: str
    make: Callable
    size: int
    small: int  # with --quick
    bound: float
    kept_bound: float | None


def pointwise(device, size):
    import torch

    torch.manual_seed(0)
    x, y = torch.randn(size).to(device), torch.randn(size).to(device)

    def chain(x, y):
        return ((((x * 2 + y).abs() - x).clamp_min(0.1) * y + 1).neg().clamp_max(3) * x + y).abs()

    return chain, (x, y)


def black_scholes(device, size):
    import torch

    torch.manual_seed(0)
    price = (torch.rand(size) * 90 + 10).to(device)
    strike = (torch.rand(size) * 90 + 10).to(device)
    years = (torch.rand(size) * 2 + 0.1).to(device)

    def normal(x):
        return (torch.erf(x / math.sqrt(2)) + 1) * 0.5

    def call_and_put(price, strike, years, rate=0.02, volatility=0.3):
        spread = volatility * years.sqrt()
        d1 = (torch.log(price / strike) + (rate + 0.5 * volatility**2) * years) / spread
        d2 = d1 - spread
        discounted = strike * torch.exp(-rate * years)
        call = price * normal(d1) - discounted * normal(d2)
        return call, call - price + discounted

    return call_and_put, (price, strike, years)


def adamw(device, size, **options):
    import torch

    torch.manual_seed(0)
    # The shapes of a transformer: large matrices, and a vector for each.
    width = 1024
    parameters = []
    for _ in range(max(1, size // (width * (width + 1)))):
        parameters += [torch.randn(width, width), torch.randn(width)]
    parameters = [torch.nn.Parameter(p.to(device)) for p in parameters]
    for p in parameters:
        p.grad = torch.randn(p.shape).to(device)
    optimiser = torch.optim.AdamW(parameters, **(options or {"foreach": False}))
    return optimiser.step, ()


def layer_norm(device, size):
    import torch
    from torch import nn

    torch.manual_seed(0)
    x = torch.randn(size, 1024).to(device).requires_grad_()
    gradient = torch.randn(size, 1024).to(device)
    norm = nn.LayerNorm(1024).to(device)

    def forward(x):
        return nn.functional.gelu(norm(x)) + x

    def step(forward=forward):
        x.grad = norm.weight.grad = norm.bias.grad = None
        forward(x).backward(gradient)
        return x.grad

    step.compilable = forward
    return step, ()


def cross_entropy(device, size):
    import torch

    torch.manual_seed(0)
    logits = torch.randn(size, 32000).to(device).requires_grad_()
    target = torch.randint(32000, (size,)).to(device)

    def forward(logits):
        return torch.nn.functional.cross_entropy(logits, target)

    def step(forward=forward):
        logits.grad = None
        loss = forward(logits)
        loss.backward()
        return loss.detach()

    step.compilable = forward
    return step, ()


def transformer(device, size):
    import torch
    from torch import nn

    torch.manual_seed(0)
    vocabulary, width, length = 8192, 256, 128

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(vocabulary, width)
            self.places = nn.Parameter(torch.randn(length, width) * 0.02)
            layer = nn.TransformerEncoderLayer(
                width, 8, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary)

        def forward(self, x):
            return self.head(self.norm(self.layers(self.tokens(x) + self.places)))

    model = Model().to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randint(vocabulary, (size, length)).to(device)
    y = torch.randint(vocabulary, (size, length)).to(device)

    def forward(x):
        return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())

    def step(forward=forward):
        optimiser.zero_grad()
        loss = forward(x)
        loss.backward()
        optimiser.step()
        return loss.detach()

    step.compilable = forward
    return step, ()


M = 1_000_000
WORKS = {
    "pointwise": Work("12 pointwise ops on 16 M floats", pointwise, 16 * M, 100_000, 30, 7),
    "black_scholes": Work("Black-Scholes on 16 M floats", black_scholes, 16 * M, 100_000, 12, 3.5),
    "adamw": Work("AdamW for-loop over 50 M parameters", adamw, 50 * M, 2 * M, 4, 3.2),
    "layer_norm": Work("layer norm + GELU + residual, 4096×1024, fwd+bwd", layer_norm, 4096, 64, 5, 4),
    "cross_entropy": Work("cross entropy 2048×32000, fwd+bwd", cross_entropy, 2048, 16, 6, 1.6),
    "transformer": Work(
        "transformer step (4 layers, width 256, 16×128, AdamW)", transformer, 16, 2, 1.2, None
    ),
}


def variant(name: str, kind: str, size: int) -> common.Variant:
    """WORKS[NAME] as "eager", "fused" (AdamW's own fused kernel), "Spool" or "inductor"."""
    import torch

    work = WORKS[name]
    if kind == "Spool":
        import torch_spool

        step, args = work.make(torch_spool.device(), size)
        return common.Variant(common.in_step(lambda: step(*args)), torch_spool.wait_device_ops)
    if kind == "fused":
        step, args = work.make("cpu", size, fused=True)
        return common.Variant(lambda: step(*args))
    step, args = work.make("cpu", size)
    if kind == "inductor":
        inner = getattr(step, "compilable", None)
        if inner is None:
            compiled = torch.compile(step)
            return common.Variant(lambda: compiled(*args))
        forward = torch.compile(inner)
        return common.Variant(lambda: step(forward))
    return common.Variant(lambda: step(*args))


def child(case: str) -> None:
    """One process's part: "rounds:WORK:SIZE:ROUNDS:KINDS" or "first:WORK:SIZE:KIND"."""
    part, name, size, *rest = case.split(":")
    if part == "rounds":
        rounds, kinds = int(rest[0]), rest[1].split(",")
        variants = {kind: variant(name, kind, int(size)) for kind in kinds}
        common.child_result(common.alternate(variants, rounds, 1, warm_up=3))
        return
    import torch

    torch.ones(8).add(1).sum().item()  # PyTorch's thread pool stands
    work = variant(name, rest[0], int(size))
    work.finish()
    start = time.perf_counter()
    work.step()
    work.finish()
    first = time.perf_counter() - start
    for _ in range(2):
        work.step()
    work.finish()
    common.child_result({"first": first, "peak": common.peak_bytes()})


def with_environment(extra: dict[str, str], case: str):
    before = {key: os.environ.get(key) for key in extra}
    os.environ.update(extra)
    try:
        return common.run_child(case)
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def measure(name: str, args) -> tuple[list[common.Figure], dict]:
    work = WORKS[name]
    size = work.small if args.quick else work.size
    kinds = ["eager", "Spool"] + ["fused"] * (name == "adamw") + ["inductor"] * args.inductor
    rounds = args.rounds or (2 if args.quick else 9)
    seconds = common.run_child(f"rounds:{name}:{size}:{rounds}:{','.join(kinds)}")
    kept = with_environment(KEEP, f"rounds:{name}:{size}:{rounds}:eager,Spool")
    first = {kind: common.run_child(f"first:{name}:{size}:{kind}") for kind in kinds if kind != "fused"}
    print(f"\n{work.title}")
    rows = common.time_rows(seconds, "eager")
    rows += [
        (f"{row[0]}, memory kept", *row[1:3], f"{common.ratio(kept[row[0]], seconds['eager']):.3f} ×")
        for row in common.time_rows(kept, "eager")
    ]
    common.print_table(("variant", "median", "rounds", "over eager's"), rows)
    figures = [
        common.Figure(work.title, common.ratio(seconds["eager"], seconds["Spool"]), "x", ">=", work.bound)
    ]
    if work.kept_bound is not None:
        figures.append(
            common.Figure(
                f"{work.title}, eager's memory kept",
                common.ratio(kept["eager"], kept["Spool"]),
                "x",
                ">=",
                work.kept_bound,
            )
        )
    if "fused" in seconds:
        figures.append(
            common.Figure(
                f"{work.title}, over fused=True",
                common.ratio(seconds["fused"], seconds["Spool"]),
                "x",
                ">=",
                0.95,
            )
        )
    if "inductor" in seconds:
        figures.append(
            common.Figure(
                f"{work.title}, over torch.compile",
                common.ratio(seconds["inductor"], seconds["Spool"]),
                "x",
                ">=",
                1.0,
            )
        )
    figures.append(
        common.Figure(
            f"{work.title}, first step over eager's",
            first["Spool"]["first"] - first["eager"]["first"],
            "s",
            "<",
            0.25,
        )
    )
    figures.append(
        common.Figure(
            f"{work.title}, peak memory over eager's",
            first["Spool"]["peak"] / first["eager"]["peak"],
            "x",
            "<=",
            1.0,
        )
    )
    return figures, {"seconds": seconds, "kept": kept, "first": first}


def main() -> int:
    cli = common.parser(__doc__)
    cli.add_argument(
        "works", nargs="*", metavar="WORK", help=f"which works (default all): {', '.join(WORKS)}"
    )
    cli.add_argument(
        "--rounds", type=int, metavar="N", help="rounds in which every variant takes its turn (default 9)"
    )
    cli.add_argument("--inductor", action="store_true", help="also measure torch.compile")
    args = cli.parse_args()
    if args.child:
        child(args.child)
        return 0
    unknown = set(args.works) - set(WORKS)
    if unknown:
        cli.error(f"expected works among {', '.join(WORKS)}, got {', '.join(sorted(unknown))}")
    figures, details = [], {}
    for name in args.works or WORKS:
        more, details[name] = measure(name, args)
        figures += more
    return common.conclude(args, figures, details)


if __name__ == "__main__":
    sys.exit(main())

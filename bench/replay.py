#!/usr/bin/env python
"""A training step that is replayed: against eager, Spool without replay and, where they are there, its peers.

A 20-layer MLP (width 64, batch 32, SGD with momentum): a step's time is overhead far more than arithmetic. All
variants run side by side in one process and take turns. Also measured: what a call of the replayed step costs the
calling thread, and how long the first calls take.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time

import common


def jax_step(layers: int, width: int, batch: int):
    """The same step in JAX; its first call's seconds and a function that runs and waits."""
    import jax
    import jax.numpy as jnp

    key = jax.random.PRNGKey(0)
    parameters = [
        (jax.random.normal(key, (width, width)) / width**0.5, jnp.zeros(width)) for _ in range(layers)
    ]
    momenta = jax.tree.map(jnp.zeros_like, parameters)
    x = jax.random.normal(key, (batch, width))

    def loss_of(parameters):
        y = x
        for at, (w, b) in enumerate(parameters):
            y = y @ w + b
            y = jax.nn.relu(y) if at + 1 < layers else y
        return jnp.mean((y - x) ** 2)

    @jax.jit
    def step(parameters, momenta):
        loss, gradients = jax.value_and_grad(loss_of)(parameters)
        momenta = jax.tree.map(lambda m, g: 0.9 * m + g, momenta, gradients)
        return jax.tree.map(lambda p, m: p - 0.01 * m, parameters, momenta), momenta, loss

    start = time.perf_counter()
    state = jax.block_until_ready(step(parameters, momenta))
    first = time.perf_counter() - start

    def run():
        nonlocal state
        state = step(state[0], state[1])

    return first, run, lambda: jax.block_until_ready(state)


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
    trainer = common.mlp_trainer(torch_spool.device(), *shape)
    replayed = torch_spool.compile(trainer.body, replay=True)

    firsts = []
    for _ in range(4):
        start = time.perf_counter()
        replayed()
        torch_spool.wait_device_ops()
        firsts.append(time.perf_counter() - start)
    variants = {
        "eager": common.Variant(eager.body),
        "Spool, step()": common.Variant(common.in_step(spool.body), torch_spool.wait_device_ops),
        "Spool, replay": common.Variant(replayed, torch_spool.wait_device_ops),
    }
    if args.inductor:
        compiled = common.mlp_trainer("cpu", *shape)
        compiled.model = torch.compile(compiled.model)
        compiled.optimiser.step = torch.compile(compiled.optimiser.step)
        variants["torch.compile (inductor)"] = common.Variant(compiled.body)
    jax_first = None
    if importlib.util.find_spec("jax") is not None:
        jax_first, run, wait = jax_step(*shape)
        variants["JAX, jit"] = common.Variant(run, wait)

    seconds = common.alternate(variants, rounds, steps, warm_up=10)
    print(f"{args.layers}-layer MLP, width {args.width}, batch {args.batch}, SGD with momentum: a whole step")
    common.print_table(("variant", "median", "rounds", "over eager's"), common.time_rows(seconds, "eager"))

    calls = []
    for _ in range(20 if args.quick else 300):
        torch_spool.wait_device_ops()
        start = time.thread_time()
        replayed()
        calls.append((time.thread_time() - start) * 1e6)
    tensors = 4 * args.layers + 2
    print(
        f"a call of the replayed step, on the calling thread: {statistics.median(calls):.1f} µs for {tensors} tensors"
    )
    print("first calls: " + ", ".join(f"{one * 1e3:.0f} ms" for one in firsts))
    if jax_first is not None:
        print(f"JAX's first call: {jax_first * 1e3:.0f} ms")
    figures = [
        common.Figure(
            f"{args.layers}-layer MLP step, eager's time over the replay's",
            1 / common.ratio(seconds["Spool, replay"], seconds["eager"]),
            "x",
            ">=",
            6.0,
        ),
        common.Figure("a call of the replayed step", statistics.median(calls), "µs", "<=", 50.0),
        common.Figure("first call of the replayed step", firsts[0], "s", "<=", jax_first or 0.9),
    ]
    return common.conclude(args, figures, seconds)


if __name__ == "__main__":
    sys.exit(main())

"""Trains the models of client_models.py on the lazy device and on the CPU, and prints what happened as one JSON line.

usage: python -m torch_spool train_models.py [NAME …]
"""

import json
import sys

import client_models
import torch
from client_models import Client
from events import events, since

import torch_spool

WARM_UP, MEASURED = 2, 3


def measured(steps, count: int) -> dict[str, object]:
    """Runs STEPS COUNT times and says what the runtime did meanwhile."""
    torch_spool.sync(wait=True)
    before = events()
    losses = [steps() for _ in range(count)]
    return {"losses": losses, **since(before)}


def state(client: Client) -> list[torch.Tensor]:
    tensors = [*client.model.parameters(), *client.model.buffers()]
    results = getattr(client.model, "results", dict)().values()
    return [tensor.detach().cpu() for tensor in (*tensors, *results)]


def report(name: str) -> dict[str, object]:
    def made(device: torch.device) -> Client:
        torch.manual_seed(0)
        return client_models.ALL[name]().to(device)

    eager = made(torch.device("cpu"))
    eager_losses = [eager.step().item() for _ in range(WARM_UP + MEASURED)]
    eager_state = state(eager)

    with torch_spool.options(exact=True):
        exact = made(torch_spool.device())
        exact_losses = [exact.step().item() for _ in range(WARM_UP + MEASURED)]
        differing = sum(not torch.equal(a, b) for a, b in zip(state(exact), eager_state, strict=True))

    lazy = made(torch_spool.device())

    def step() -> torch.Tensor:
        with torch_spool.step():
            return lazy.step()

    warm_up, after = measured(step, WARM_UP), measured(step, MEASURED)
    losses = [loss.item() for part in (warm_up, after) for loss in part.pop("losses")]
    return {
        "losses": losses,
        "eager_losses": eager_losses,
        "exact_losses": exact_losses,
        "differing": differing,
        "steps": MEASURED,
        "warm_up": warm_up,
        "after": after,
    }


if __name__ == "__main__":
    print(json.dumps({name: report(name) for name in sys.argv[1:] or client_models.ALL}))

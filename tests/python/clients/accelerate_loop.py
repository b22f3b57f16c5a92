"""A training loop on `accelerate` that knows nothing of Spool: accumulation, clipping, gathered metrics, saved state.

Nothing is shuffled: for XLA devices accelerate gives a shuffling loader a generator of its own, and so another order.

usage: accelerate_loop.py FOLDER [--cpu]     prints a JSON line: losses, accuracies, what a loaded state gives again
"""

import json
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def model_and_data() -> tuple[nn.Module, DataLoader, DataLoader]:
    inputs = torch.randn(48, 3, 8, 8)
    labels = (inputs.mean((1, 2, 3)) > 0).long()
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.GELU(),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.LazyLinear(2),
    )
    model(inputs)
    dataset = TensorDataset(inputs, labels)
    return model, DataLoader(dataset, batch_size=8), DataLoader(dataset, batch_size=20)


def train(accelerator: Accelerator, model, optimiser, schedule, loader) -> list[float]:
    losses = []
    model.train()
    for inputs, labels in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimiser.step()
            schedule.step()
            optimiser.zero_grad()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def accuracy(accelerator: Accelerator, model, loader) -> float:
    model.eval()
    hits = []
    with torch.no_grad():
        for inputs, labels in loader:
            guesses, truth = accelerator.gather_for_metrics((model(inputs).argmax(1), labels))
            hits.append((guesses == truth).float())
    return torch.cat(hits).mean().item()


def main() -> None:
    folder, cpu = sys.argv[1], "--cpu" in sys.argv
    accelerator = Accelerator(cpu=cpu, gradient_accumulation_steps=2)
    set_seed(5)
    model, loader, test_loader = model_and_data()
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 12)
    prepared = accelerator.prepare(model, optimiser, schedule, loader, test_loader)
    model, optimiser, schedule, loader, test_loader = prepared

    losses = train(accelerator, model, optimiser, schedule, loader)
    accelerator.save_state(folder)
    second = train(accelerator, model, optimiser, schedule, loader)
    accelerator.load_state(folder)
    again = train(accelerator, model, optimiser, schedule, loader)
    reduced = accelerator.reduce(torch.tensor([1.0, 2.0], device=accelerator.device), "mean")
    found = {
        "losses": losses,
        "second": second,
        "again": again,
        "accuracy": accuracy(accelerator, model, test_loader),
        "reduced": reduced.tolist(),
        "device": accelerator.device.type,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""Training programs that several tests run: each gives its losses, then parameters and buffers."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

Cut = Callable[[], object]


def _state(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _train(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    batches: Iterator[tuple[Tensor, Tensor]],
    loss_of: Callable[[Tensor, Tensor], Tensor],
    dev: torch.device,
    cut: Cut,
) -> list[Tensor]:
    losses = []
    for inputs, targets in batches:
        optimiser.zero_grad()
        loss = loss_of(model(inputs.to(dev)), targets.to(dev))
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
        cut()
    return losses + _state(model)


def mlp_sgd(dev: torch.device, cut: Cut, steps: int = 10) -> list[Tensor]:
    """A classifier with momentum, weight decay and a learning-rate schedule."""
    model = nn.Sequential(nn.Linear(12, 33), nn.ReLU(), nn.Linear(33, 17), nn.Tanh(), nn.Linear(17, 5)).to(
        dev
    )
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)

    def both() -> None:
        schedule.step()
        cut()

    batches = ((torch.randn(16, 12), torch.randint(5, (16,))) for _ in range(steps))
    return _train(model, optimiser, batches, nn.functional.cross_entropy, dev, both)


def conv_batch_norm(dev: torch.device, cut: Cut, steps: int = 10) -> list[Tensor]:
    """Convolutions, batch norm (its statistics too), pooling and dropout."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, stride=2), nn.BatchNorm2d(12), nn.GELU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(12, 4),
    ).to(dev)  # fmt: skip
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    batches = ((torch.randn(6, 3, 14, 14), torch.randint(4, (6,))) for _ in range(steps))
    return _train(model, optimiser, batches, nn.functional.cross_entropy, dev, cut)


def adam(dev: torch.device, cut: Cut, steps: int = 10) -> list[Tensor]:
    """A regression with Adam and clipped gradients."""
    model = nn.Sequential(nn.Linear(7, 19), nn.Sigmoid(), nn.Linear(19, 3)).to(dev)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    optimiser.register_step_pre_hook(lambda *_: nn.utils.clip_grad_norm_(model.parameters(), 0.5) and None)
    batches = ((torch.randn(9, 7), torch.randn(9, 3)) for _ in range(steps))
    return _train(model, optimiser, batches, nn.functional.mse_loss, dev, cut)


def adamw_attention(dev: torch.device, cut: Cut, steps: int = 10) -> list[Tensor]:
    """Embedding, layer norm and attention with AdamW: a small transformer."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(23, 16)
            self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
            self.head = nn.Linear(16, 23)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.block(self.embedding(tokens))).flatten(0, 1)

    model = Net().to(dev)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    batches = ((torch.randint(23, (3, 6)), torch.randint(23, (18,))) for _ in range(steps))
    return _train(model, optimiser, batches, nn.functional.cross_entropy, dev, cut)


ALL = {f.__name__: f for f in (mlp_sgd, conv_batch_norm, adam, adamw_attention)}

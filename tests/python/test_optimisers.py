"""Every optimiser of PyTorch trains on the lazy device as on the CPU, bit for bit: each of its settings, on lists and tensor by tensor,
with closures, groups, schedules, and a state that is saved and loaded in between."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.common_optimizers import optim_db

import torch_spool
from database_exceptions import OPTIMISERS
from helpers import count, same, same_all

INFOS = {info.optim_cls.__name__: info for info in optim_db if not info.only_supports_sparse_grads}
STEPS = 4
pytestmark = pytest.mark.usefixtures("exact")


def model_of(name: str, device: torch.device) -> nn.Module:
    torch.manual_seed(0)
    if name == "Muon":  # matrices only
        return nn.Sequential(nn.Linear(5, 4, bias=False), nn.Tanh(), nn.Linear(4, 3, bias=False)).to(device)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).to(device)


def settings_of(info: Any) -> list[tuple[str, dict[str, Any]]]:
    inputs = info.optim_inputs_func(device="cpu")
    return [(i.desc, i.kwargs) for i in inputs if "capturable" not in i.kwargs]


def closure_of(
    model: nn.Module, optimiser: torch.optim.Optimizer, step: int, device: torch.device
) -> Callable[[], torch.Tensor]:
    torch.manual_seed(step)
    x, y = torch.randn(6, 5).to(device), torch.randn(6, 3).to(device)

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    return closure


def train(info: Any, options: dict[str, Any], device: torch.device, **more: Any) -> list[torch.Tensor]:
    """Some steps, half of them with a closure, and the state saved and loaded half-way."""
    name = info.optim_cls.__name__
    options = {**copy.deepcopy(options), **more}
    model = model_of(name, device)
    groups: Any = model.parameters()
    if info.supports_param_groups and name != "LBFGS":
        groups = [
            {"params": list(model[0].parameters()), "lr": options.get("lr", 0.01)},
            {"params": list(model[2].parameters())},
        ]
    optimiser = info.optim_cls(groups, **options)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 2, 0.5)
    losses = []
    for step in range(STEPS):
        closure = closure_of(model, optimiser, step, device)
        if info.step_requires_closure or step % 2:
            losses.append(optimiser.step(closure).detach())
        else:
            losses.append(closure().detach())
            optimiser.step()
        schedule.step()
        if device.type == "xla":
            torch_spool.sync()
        if step == STEPS // 2:
            state = copy.deepcopy(optimiser.state_dict())
            optimiser = info.optim_cls(groups, **copy.deepcopy(options))
            optimiser.load_state_dict(state)
            schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.9)
    return [*losses, *(p.detach() for p in model.parameters())]


def implementations(info: Any) -> list[dict[str, bool]]:
    """As it comes, and each way that it can be asked for."""
    ways: list[dict[str, bool]] = [{}]
    if "foreach" in info.supported_impls:
        ways += [{"foreach": True}, {"foreach": False}]
    if "cpu" in info.supports_fused_on:
        ways += [{"fused": True}]
    return ways


def takes_lists(info: Any) -> bool:
    """Adafactor goes tensor by tensor on every device, to save memory."""
    return "foreach" in info.supported_impls and info.optim_cls is not torch.optim.Adafactor


@pytest.mark.parametrize("name", INFOS)
def test_an_optimiser_trains_as_on_the_cpu(name: str, dev: torch.device) -> None:
    info = INFOS[name]
    difference = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for described, options in settings_of(info):
            for way in implementations(info):
                # The device takes lists unless told otherwise, and some optimisers round differently on lists.
                lists = {"foreach": True} if not way and takes_lists(info) else {}
                try:
                    want = train(info, options, torch.device("cpu"), **way, **lists)
                except (RuntimeError, ValueError):  # tensors as rates go with some implementations only
                    continue
                try:
                    same_all(train(info, options, dev, **way), want)
                except Exception as error:
                    difference = difference or f"{described}, {way}: {type(error).__name__}: {error}"
    if name in OPTIMISERS:
        assert difference is not None, f"listed in database_exceptions.py, but it is equal: remove {name}"
    else:
        assert difference is None, difference


def test_lists_are_the_default_and_one_op_on_the_tape(dev: torch.device) -> None:
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(20))).to(dev)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 3, device=dev)).sum().backward()
    torch_spool.sync(wait=True)
    before = torch_spool._C.recorder_stats()["ops"]
    optimiser.step()
    assert torch_spool._C.recorder_stats()["ops"] - before == 1
    weight = next(model.parameters())
    assert "aten::_foreach_add_.List" in torch_spool.graph_text([weight])


def test_a_rate_that_changes_does_not_compile_again(dev: torch.device) -> None:
    from helpers import compiles

    model = nn.Linear(3, 3).to(dev)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.9)
    counts = []
    for _ in range(6):
        optimiser.zero_grad()
        model(torch.ones(2, 3, device=dev)).square().sum().backward()
        optimiser.step()
        schedule.step()
        torch_spool.sync()
        counts.append(compiles())
    assert counts[-1] == counts[2]


@pytest.mark.parametrize("foreach", [None, True, False])
def test_gradients_are_clipped_as_on_the_cpu(dev: torch.device, foreach: bool | None) -> None:
    def program(device: torch.device) -> list[torch.Tensor]:
        model = model_of("SGD", device)
        model(torch.ones(3, 5, device=device)).square().sum().backward()
        total = nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=foreach)
        nn.utils.clip_grad_value_(model.parameters(), 0.1, foreach=foreach)
        return [total, *(p.grad for p in model.parameters())]

    same_all(program(dev), program(torch.device("cpu")))


def test_lists_that_do_not_go_together_are_eagers_error_and_unlike_dtypes_eagers_result(
    dev: torch.device,
) -> None:
    for device in (dev, torch.device("cpu")):
        a, b = torch.ones(2, device=device), torch.ones(3, device=device)
        with pytest.raises(RuntimeError):
            torch._foreach_add_([a, b], [a])
        with pytest.raises(RuntimeError):
            torch._foreach_add_([a], [b])
    x, k = torch.ones(2, device=dev), torch.arange(2, device=dev)
    got = torch._foreach_add([x, k], [k, x])
    same_all(got, torch._foreach_add([x.cpu(), k.cpu()], [k.cpu(), x.cpu()]))
    torch._foreach_add_([x], [k])
    same(x, torch.tensor([1.0, 2.0]))
    assert count("aten::_foreach_add_.List") == 0


def test_exceptions_name_optimisers_that_exist() -> None:
    assert set(OPTIMISERS) <= set(INFOS) and all(OPTIMISERS.values())

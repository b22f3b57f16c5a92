"""Every module of PyTorch's database does on the lazy device what it does on the CPU: forward, backward, state_dict both ways, training and
evaluation."""

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves, tree_map

import torch_spool
from database_exceptions import MODULES, MODULES_WITHIN_TOLERANCE
from helpers import same

SAMPLED = 4  # of each module's inputs
pytestmark = pytest.mark.usefixtures("exact")
MODULES_OF = {info.name: info for info in module_db}


def inputs_of(info: Any, training: bool) -> list[Any]:
    torch.manual_seed(0)
    inputs = info.module_inputs_func(
        info, device=torch.device("cpu"), dtype=torch.float32, requires_grad=True, training=training
    )
    given = [i for i in inputs if i.forward_input is not None]
    step = max(1, len(given) // SAMPLED)
    return given[::step][:SAMPLED]


def placed(value: Any, device: torch.device) -> Any:
    """The arguments copied to a device, as leaves."""

    def place(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().to(device, copy=True).requires_grad_(leaf.requires_grad)
        return leaf

    return tree_map(place, value)


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def run(info: Any, given: Any, device: torch.device, training: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """(what it is, tensor) of all that one step leaves: results, gradients, state."""
    torch.manual_seed(1)
    arguments, options = given.constructor_input.args, given.constructor_input.kwargs
    module = info.module_cls(*placed(arguments, torch.device("cpu")), **placed(options, torch.device("cpu")))
    module.to(device).train(training)
    args = placed(given.forward_input.args, device)
    kwargs = placed(given.forward_input.kwargs, device)
    torch.manual_seed(2)
    results = tensors(module(*args, **kwargs))
    for i, result in enumerate(results):
        yield f"result {i}", result
    wanted = [r for r in results if r.requires_grad]
    if wanted:
        torch.manual_seed(3)
        torch.autograd.backward(wanted, [torch.randn(r.shape, dtype=r.dtype).to(device) for r in wanted])
    for i, leaf in enumerate(tensors((args, kwargs))):
        if leaf.grad is not None:
            yield f"gradient of argument {i}", leaf.grad
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            yield f"gradient of {name}", parameter.grad
    yield from module.state_dict().items()


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", MODULES_OF)
def test_a_module_does_what_it_does_on_the_cpu(name: str, mode: str, dev: torch.device) -> None:
    info = MODULES_OF[name]
    difference = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for given in inputs_of(info, mode == "train"):
            try:
                want = dict(run(info, given, torch.device("cpu"), mode == "train"))
            except Exception:  # what eager refuses is no subject here
                continue
            try:
                got = dict(run(info, given, dev, mode == "train"))
                assert got.keys() == want.keys(), f"{sorted(got)}, expected {sorted(want)}"
                for what, tensor in want.items():
                    assert got[what].device.type == "xla", what
                    if name in MODULES_WITHIN_TOLERANCE:
                        torch.testing.assert_close(got[what].cpu(), tensor, msg=lambda m, w=what: f"{w}: {m}")
                    else:
                        same(got[what], tensor, what)
            except Exception as error:
                difference = (
                    f"{given.desc or given.constructor_input.kwargs}: {type(error).__name__}: {error}"
                )
                break
        torch_spool.sync(wait=True)
    if (name, mode) in MODULES:
        assert difference is not None, (
            f"listed in database_exceptions.py, but it is equal: remove {(name, mode)}"
        )
    else:
        assert difference is None, difference


@pytest.mark.parametrize("name", MODULES_OF)
def test_a_state_dict_goes_both_ways(name: str, dev: torch.device) -> None:
    info = MODULES_OF[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for given in inputs_of(info, True)[:1]:
            made = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
            if isinstance(made, nn.modules.lazy.LazyModuleMixin):  # it has parameters after its first input
                made(*placed(given.forward_input.args, torch.device("cpu")))
            want = copy.deepcopy(made.state_dict())
            there = copy.deepcopy(made).to(dev)
            for parameter in there.state_dict().values():
                if parameter.is_floating_point():
                    parameter.detach().zero_()
            there.load_state_dict(want)
            for key, value in there.state_dict().items():
                same(value, want[key], key)
            back = copy.deepcopy(made)
            back.load_state_dict(there.state_dict())
            for key, value in back.state_dict().items():
                assert value.device.type == "cpu"
                same(value, want[key], key)


def test_exceptions_name_modules_that_exist() -> None:
    assert {name for name, _ in MODULES} | set(MODULES_WITHIN_TOLERANCE) <= set(MODULES_OF)
    assert all([*MODULES.values(), *MODULES_WITHIN_TOLERANCE.values()])

"""PyTorch's own database of operations, as the tests of ops use it: which ops and dtypes, samples of arguments, their copies on a device."""

import gc
import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
GENERATED = 16  # samples asked for of each op and dtype (some ops have thousands), of which those that are run are picked

# A name is "op.variant", as PyTorch's tests call them. The database holds a few entries twice.
OPS: dict[str, Any] = {}
for _op in op_db:
    _name, _more = _op.full_name, 2
    while _name in OPS:
        _name, _more = f"{_op.full_name}.{_more}", _more + 1
    OPS[_name] = _op

# The database holds so many objects that looking through them after each test would take longer than the tests.
gc.collect()
gc.freeze()


class NotApplicable(Exception):
    """A sample has nothing to compare: it holds tensors that are not strided, which the device doesn't have, or no gradient."""


def dtypes_of(op: Any) -> list[torch.dtype]:
    """Those of DTYPES that the CPU has for an op."""
    return [dtype for dtype in DTYPES if dtype in op.supported_dtypes("cpu")]


def differentiable_dtypes_of(op: Any) -> list[torch.dtype]:
    """Those of DTYPES in which the CPU has the op's gradient."""
    return [dtype for dtype in DTYPES if dtype in op.supported_backward_dtypes("cpu")]


def samples_of(op: Any, dtype: torch.dtype, count: int, requires_grad: bool = False) -> list[Any]:
    """COUNT of the op's samples, spread over the first GENERATED ones; always the same."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        generated = list(
            itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=requires_grad), GENERATED)
        )
    if len(generated) <= count:
        return generated
    step = (len(generated) - 1) / max(count - 1, 1)
    return [generated[round(i * step)] for i in range(count)]


class Placed:
    """A sample's arguments copied to a device, with their strides, their shared storages and what is outside of their views."""

    def __init__(self, sample: Any, device: torch.device) -> None:
        self._device = device
        self._storages: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self._known: dict[int, torch.Tensor] = {}
        self.tensors: list[torch.Tensor] = []
        self.leaves: list[torch.Tensor] = []  # those that want a gradient
        self.input = self._place(sample.input)
        self.args = tuple(self._place(arg) for arg in sample.args)
        self.kwargs = {
            # Factories are asked for tensors on "cpu".
            name: device if name == "device" and value is not None else self._place(value)
            for name, value in sample.kwargs.items()
        }

    def _place(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in self._known:
                self._known[id(value)] = self._place_tensor(value)
            return self._known[id(value)]
        if isinstance(value, torch.device) or (isinstance(value, str) and value == "cpu"):
            return self._device
        if isinstance(value, torch.Size):
            return value
        if isinstance(value, list):
            return [self._place(item) for item in value]
        if isinstance(value, tuple):
            return tuple(self._place(item) for item in value)
        if isinstance(value, dict):
            return {name: self._place(item) for name, item in value.items()}
        return value

    def _place_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized or not tensor.is_cpu:
            raise NotApplicable
        key = (tensor.untyped_storage()._cdata, tensor.dtype)
        if key not in self._storages:
            whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
            self._storages[key] = whole.to(self._device, copy=True)
        placed = self._storages[key].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        if tensor.is_conj():
            placed = placed.conj()
        if tensor.is_neg():
            placed = torch._neg_view(placed)
        placed = placed.detach()
        self.tensors.append(placed)
        if tensor.requires_grad:
            self.leaves.append(placed.requires_grad_())
        return placed


def without_elements(sample: Any) -> Iterator[Any]:
    """The sample with its tensors cut to nothing along their first, then along their last dimension."""
    yield sample.transform(lambda x: x[:0] if isinstance(x, torch.Tensor) and x.dim() else x)
    yield sample.transform(lambda x: x[..., :0] if isinstance(x, torch.Tensor) and x.dim() > 1 else x)

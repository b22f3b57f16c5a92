"""What a function's code can look at: modules, optimisers, numbers in its closure, globals and objects."""

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

# How far from the function an object may be, and how long a list, to be looked into.
_MAX_DEPTH = 6
_MAX_LENGTH = 1000
_PLAIN = (int, float, bool, str, bytes, complex, type(None))
_OWN = {"torch", "torch_spool", "builtins", "numpy"}
# Where PyTorch counts things of its own: nothing that a call computes depends on it.
_UNSEEN = {"_opt_called", "_zero_grad_profile_name", "_patched_optimizer_step"}


def _is_foreign(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "").split(".")[0] in _OWN


class Reach:
    """All that can be reached from a function, as far as it decides what a call does."""

    def __init__(self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._seen: dict[int, Any] = {}
        self._leaves: dict[int, Tensor] = {}
        self._optimisers: list[torch.optim.Optimizer] = []
        self._items: list[
            tuple[Any, Any, str]
        ] = []  # (dict, key), (cell, None) or (list, its length), and a name
        self._walk(f, getattr(f, "__qualname__", type(f).__qualname__), 0)
        for value in (*args, *kwargs.values()):
            self._walk(value, "an argument", 0)

    def leaves(self) -> list[Tensor]:
        """Tensors of which gradients may be taken."""
        return list(self._leaves.values())

    def has(self, tensor: Tensor) -> bool:
        """Whether TENSOR is among the leaves."""
        return id(tensor) in self._leaves

    def list_choices(self) -> Iterator[dict[str, Any]]:
        """Groups of parameters whose optimiser chooses by itself whether it works on lists of tensors."""
        for optimiser in self._optimisers:
            for group in optimiser.param_groups:
                if group.get("foreach", True) is None:
                    yield group

    def numbers(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Where optimisers keep numbers that may change from step to step."""
        for optimiser in self._optimisers:
            for group in optimiser.param_groups:
                for key, value in group.items():
                    if type(value) is float:
                        yield group, key

    def watch(self, signature: Any) -> None:
        """Make SIGNATURE hold only while all this is as it is now."""
        for holder, key, _ in self._items:
            if isinstance(holder, types.CellType):
                signature.watch_cell(holder)
            elif isinstance(holder, dict) and key is not _Length:
                signature.watch_item(holder, key)
            else:
                signature.watch_length(holder)

    def name(self, at: int) -> str:
        """The AT-th thing that is watched, for people."""
        return self._items[at][2]

    def _item(self, holder: dict[Any, Any], key: Any, name: str) -> None:
        self._items.append((holder, key, name))

    def _walk(self, value: Any, name: str, depth: int) -> None:
        if isinstance(value, _PLAIN) or isinstance(value, (type, types.ModuleType)) or depth > _MAX_DEPTH:
            return
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, Tensor):
            if value.requires_grad and value.is_leaf:
                self._leaves[id(value)] = value
        elif isinstance(value, nn.Module):
            self._module(value, name, depth)
        elif isinstance(value, torch.optim.Optimizer):
            self._optimiser(value, name)
        elif isinstance(value, types.FunctionType):
            if not _is_foreign(value):
                self._function(value, name, depth)
        elif isinstance(value, types.MethodType):
            self._walk(value.__self__, name.rpartition(".")[0] or "self", depth)
            self._walk(value.__func__, name, depth)
        elif isinstance(value, functools.partial):
            for one in (value.func, *value.args, *value.keywords.values()):
                self._walk(one, name, depth + 1)
        elif isinstance(value, (list, tuple, dict)):
            self._container(value, name, depth)
        elif isinstance(getattr(value, "__dict__", None), dict) and not _is_foreign(type(value)):
            self._object(value, name, depth)
        elif isinstance(value, torch.optim.lr_scheduler.LRScheduler):
            self._object(value, name, depth)

    def _function(self, f: types.FunctionType, name: str, depth: int) -> None:
        for variable, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
            self._items.append((cell, None, f"the variable {variable!r}"))
            try:
                self._walk(cell.cell_contents, variable, depth + 1)
            except ValueError:
                pass  # not assigned yet
        for variable in _names(f.__code__):
            if variable in f.__globals__:
                value = f.__globals__[variable]
                if not isinstance(value, (type, types.ModuleType)) and not _is_foreign(value):
                    self._item(f.__globals__, variable, f"the global variable {variable!r}")
                self._walk(value, variable, depth + 1)
        for value in (*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()):
            self._walk(value, name, depth + 1)

    def _module(self, module: nn.Module, name: str, depth: int) -> None:
        for key, value in module.__dict__.items():
            if isinstance(value, _PLAIN) and key not in _UNSEEN:
                self._item(module.__dict__, key, f"{name}.{key}")
            elif isinstance(value, (list, dict)) and not key.startswith("_"):
                self._walk(value, f"{name}.{key}", depth + 1)
        for registry in ("_parameters", "_buffers", "_modules"):
            held = module.__dict__[registry]
            for key, value in held.items():
                self._item(held, key, f"{name}.{key}")
                self._walk(value, f"{name}.{key}", min(depth, 1))
        if type(module).__module__.split(".")[0] not in _OWN:
            self._walk(type(module).forward, f"{name}.forward", depth + 1)

    def _optimiser(self, optimiser: torch.optim.Optimizer, name: str) -> None:
        self._optimisers.append(optimiser)
        self._length(optimiser.param_groups, f"{name}.param_groups")
        for at, group in enumerate(optimiser.param_groups):
            for tensor in group["params"]:
                self._walk(tensor, name, 0)
            for key, value in group.items():
                if key != "params" and type(value) is not float:
                    self._item(group, key, f"{name}.param_groups[{at}][{key!r}]")

    def _length(self, value: Any, name: str) -> None:
        self._items.append((value, _Length, f"the length of {name}"))

    def _container(self, value: Any, name: str, depth: int) -> None:
        if isinstance(value, (list, dict)):
            self._length(value, name)
        if len(value) <= _MAX_LENGTH:
            for key, one in value.items() if isinstance(value, dict) else enumerate(value):
                if isinstance(value, dict) and isinstance(one, _PLAIN):
                    self._item(value, key, f"{name}[{key!r}]")
                self._walk(one, f"{name}[{key!r}]", depth + 1)

    def _object(self, value: Any, name: str, depth: int) -> None:
        for key, one in vars(value).items():
            if key not in _UNSEEN:
                self._item(vars(value), key, f"{name}.{key}")
                self._walk(one, f"{name}.{key}", depth + 1)
        method = inspect.getattr_static(type(value), "__call__", None)
        if isinstance(method, types.FunctionType):
            self._walk(method, name, depth + 1)


class _Length:
    """In place of a key: the length is watched."""


def _names(code: types.CodeType) -> Iterator[str]:
    """Names that CODE and functions inside it may look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)

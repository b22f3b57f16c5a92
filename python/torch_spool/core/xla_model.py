"""`xm`: the older names of Spool's functions, and helpers of training scripts.

A process has one replica; what other replicas would add is the identity.
"""

import collections
import copy
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any, TypeVar

import torch

from .. import _api
from .._load import _C

T = TypeVar("T")

add_step_closure = _api.add_step_closure
wait_device_ops = _api.wait_device_ops
get_rng_state = _api.get_rng_state


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """The old name of `torch_spool.sync`."""
    _api.sync(wait, reset_scope)


def xla_device(n: int | None = None, devkind: str | None = None) -> torch.device:
    """The lazy device with index N (by default the first).

    DEVKIND may name the kind of hardware, "CPU"; another raises `ValueError`.
    """
    _check_kind("xla_device", devkind)
    return _api.check_device("xla_device", n)


def xla_devices(devkind: str | None = None) -> list[torch.device]:
    """All lazy devices (of this kind of hardware)."""
    _check_kind("xla_devices", devkind)
    return _api.devices()


def get_xla_supported_devices(devkind: str | None = None, max_devices: int | None = None) -> list[str]:
    """The names of the lazy devices, at most MAX_DEVICES of them."""
    return [str(one) for one in xla_devices(devkind)[:max_devices]]


def xla_device_hw(device: torch.device | str) -> str:
    """What the device computes on: "CPU"."""
    _api.check_device("xla_device_hw", device)
    return "CPU"


def _check_kind(call: str, devkind: str | None) -> None:
    if devkind not in (None, "CPU"):
        raise ValueError(f"[{call}] expected devkind None or 'CPU', got {devkind!r}")


def get_ordinal() -> int:
    """This replica's number: 0."""
    return 0


def get_local_ordinal() -> int:
    """This replica's number on this host: 0."""
    return 0


def get_world_size() -> int:
    """The number of replicas: 1."""
    return 1


xrt_world_size = get_world_size


def is_master_ordinal(local: bool = True) -> bool:
    """Whether this replica is the first (on its host, or of all)."""
    return (get_local_ordinal() if local else get_ordinal()) == 0


def master_print(*args: Any, fd: IO[str] | None = None, local: bool = False, flush: bool = False) -> None:
    """Print to FD (by default stdout) if this replica is the master."""
    if is_master_ordinal(local=local):
        print(*args, file=sys.stdout if fd is None else fd, flush=flush)


def mesh_reduce(tag: str, data: T, reduce_fn: Callable[[list[T]], Any]) -> Any:
    """`reduce_fn` of the list of all replicas' DATA: here `[data]`."""
    return reduce_fn([data])


REDUCE_SUM = "sum"
REDUCE_MUL = "mul"
REDUCE_AND = "and"
REDUCE_OR = "or"
REDUCE_MIN = "min"
REDUCE_MAX = "max"
_REDUCTIONS = (REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX)


def set_replication(device: _api.DeviceLike, devices: Sequence[torch.device | str]) -> None:
    """Declare which devices compute as replicas: DEVICE alone, so there is nothing to do.

    Raises `ValueError` for other DEVICES.
    """
    mine = _api.check_device("set_replication", device)
    named = [_api.check_device("set_replication", one) for one in devices]
    if named not in ([], [mine]):
        raise ValueError(f"[set_replication] expected [{mine}], got {named}: a process has one replica")


def all_reduce(
    reduce_type: str,
    inputs: torch.Tensor | Sequence[torch.Tensor],
    scale: float = 1.0,
    groups: Sequence[Sequence[int]] | None = None,
    cctx: object = None,
    pin_layout: bool = True,
) -> torch.Tensor | None:
    """INPUTS reduced over all replicas, times SCALE.

    A tensor gives a new one. Tensors in a sequence are changed in place, and the result is `None`.
    """
    if reduce_type not in _REDUCTIONS:
        raise ValueError(f"[all_reduce] expected one of {', '.join(_REDUCTIONS)}, got {reduce_type!r}")
    if isinstance(inputs, torch.Tensor):
        return inputs.clone() if scale == 1.0 else inputs * scale
    if scale != 1.0:
        with torch.no_grad():
            for one in inputs:
                one.mul_(scale)
    return None


def all_gather(
    value: torch.Tensor | Sequence[torch.Tensor],
    dim: int = 0,
    groups: Sequence[Sequence[int]] | None = None,
    output: torch.Tensor | None = None,
    pin_layout: bool = True,
) -> torch.Tensor | list[torch.Tensor]:
    """VALUE of all replicas, concatenated along DIM; of a sequence, each tensor so."""
    if not isinstance(value, torch.Tensor):
        return [torch.cat([one], dim) for one in value]
    return torch.cat([value], dim) if output is None else torch.cat([value], dim, out=output)


def collective_broadcast(
    tensors: Sequence[torch.Tensor],
    root_ordinal: int = 0,
    groups: Sequence[int] | None = None,
    pin_layout: bool = True,
) -> None:
    """Give TENSORS in place the values they have on the replica ROOT_ORDINAL: this one."""
    if root_ordinal != 0:
        raise ValueError(f"[collective_broadcast] expected root_ordinal 0, got {root_ordinal}")


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Give MODEL's parameters and buffers the values they have on the first replica: this one."""


def _fetch_gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    grads = (one.grad for group in optimizer.param_groups for one in group["params"])
    return [grad for grad in grads if grad is not None]


def reduce_gradients(
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Sequence[int]] | None = None,
    pin_layout: bool = True,
) -> None:
    """Make all gradients of OPTIMIZER's parameters their mean over the replicas."""
    all_reduce(REDUCE_SUM, _fetch_gradients(optimizer), scale=1.0 / get_world_size())


def rendezvous(tag: str, payload: bytes = b"", replicas: Sequence[int] = ()) -> list[bytes]:
    """Wait until all replicas are here; gives the list of their payloads."""
    return [payload]


def optimizer_step(
    optimizer: torch.optim.Optimizer,
    barrier: bool = False,
    optimizer_args: Mapping[str, Any] | None = None,
) -> Any:
    """`optimizer.step(**optimizer_args)`; gives its result.

    With BARRIER the step is then cut and launched, as `mark_step` does.
    """
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        mark_step()
    return loss


def unlazy(tensors: Iterable[torch.Tensor]) -> None:
    """Cut, and wait until TENSORS have their values.

    Raises the failure of the graph that should have computed one of them.
    """
    _C.unlazy(list(tensors))


def optimization_barrier_(tensors: Iterable[torch.Tensor]) -> None:
    """Keep passes from moving or merging operations across this point.

    Graphs run in program order and no pass reorders them yet, so this only
    checks that TENSORS are lazy; else it raises `RuntimeError`.
    """
    _C.optimization_barrier_(list(tensors))


def set_rng_state(seed: int | torch.Tensor, device: _api.DeviceLike = None) -> None:
    """Seed with a number, or restore the state that `get_rng_state` gave."""
    if isinstance(seed, torch.Tensor):
        _api.set_rng_state(seed, device)
    else:
        _api.manual_seed(seed, device)


def get_memory_info(device: _api.DeviceLike = None) -> dict[str, int]:
    """Memory in bytes: `bytes_used`, `bytes_limit` and `peak_bytes_used`.

    The limit of a device on the host's own memory is the size of that memory.
    """
    _api.check_device("get_memory_info", device)
    used, peak = _C.memory_info()
    limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"bytes_used": used, "bytes_limit": limit, "peak_bytes_used": peak}


def send_cpu_data_to_device(datas: Any, device: torch.device | str) -> Any:
    """DATAS, a sequence or a dict, with all tensors, also in dicts, lists and tuples, on DEVICE."""
    where = _api.check_device("send_cpu_data_to_device", device)
    if isinstance(datas, collections.abc.Mapping):
        return _map_tensors(datas, lambda t: t.to(where), {})
    return [_map_tensors(data, lambda t: t.to(where), {}) for data in datas]


def save(
    data: Any,
    file_or_path: str | os.PathLike[str] | IO[bytes],
    master_only: bool = True,
    global_master: bool = False,
) -> None:
    """Save DATA with its tensors on the CPU, so that it loads anywhere.

    All that is pending is launched first. Tensors in dicts, lists, tuples and
    modules are copied to the CPU, one that occurs twice once; two views of one
    storage become two tensors (`torch.save` does the same for this device).

    Args:
        master_only: only the master replica writes.
        global_master: the master is the first of all replicas, not of a host.
    """
    if master_only and not is_master_ordinal(local=not global_master):
        return
    mark_step()
    torch.save(_map_tensors(data, _to_cpu, {}), file_or_path)


def _maybe_convert_to_cpu(data: Any, convert: bool = True) -> Any:
    """DATA with its tensors on the CPU, as `save` writes it. Packages that save in their own way call this."""
    mark_step()
    return _map_tensors(data, _to_cpu, {}) if convert else data


def _to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type == "cpu":
        return tensor
    copied = tensor.detach().cpu()
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(copied, requires_grad=tensor.requires_grad)
    return copied.requires_grad_(tensor.requires_grad)


def _map_tensors(data: Any, change: Callable[[torch.Tensor], Any], memo: dict[int, Any]) -> Any:
    """DATA with CHANGE applied to the tensors in it, once to each."""
    if isinstance(data, torch.Tensor):
        if id(data) not in memo:
            memo[id(data)] = change(data)
        return memo[id(data)]
    if isinstance(data, torch.nn.Module):
        module = copy.deepcopy(data)
        return module._apply(change)
    if isinstance(data, collections.abc.MutableMapping):
        mapped = copy.copy(data)  # keeps the type and, of a state_dict, _metadata
        for key, value in data.items():
            mapped[key] = _map_tensors(value, change, memo)
        return mapped
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(_map_tensors(one, change, memo) for one in data))
    if isinstance(data, (list, tuple, set)):
        return type(data)(_map_tensors(one, change, memo) for one in data)
    return data

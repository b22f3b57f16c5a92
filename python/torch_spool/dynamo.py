"""The bridge to `torch.compile`: its FX graphs as graphs of the lazy device.

    fast = torch.compile(model, backend="openxla")      # or backend="spool"

`extract_compiled_graph` is what the backend is made of; it can be called by
itself. It compiles a graph without running it. Calls of what it returns record
nothing: they launch the compiled graph on the buffers of their arguments.
"""

import copy
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from . import _fx_split
from ._load import _C

__all__ = ["NotExtractable", "extract_compiled_graph"]

# Of one function, for arguments that differ in shape, in what they share or in value. Beyond that it is recorded: the
# cache of recorded graphs has a bound of its own.
_MAX_GRAPHS = 8


class NotExtractable(RuntimeError):
    """Why a graph can't be compiled as one, and the op to blame, if it is one."""

    def __init__(self, reason: str, node: fx.Node | None = None) -> None:
        super().__init__(reason)
        self.node = node


def extract_compiled_graph(fx_module: fx.GraphModule, args: Sequence[Any]) -> Callable[..., Any]:
    """Compile FX_MODULE for ARGS, running nothing; give a function of such arguments.

    ARGS are tensors on the lazy device or on the CPU, numbers, or anything
    that can be compared. No op runs, no input changes and nothing stays
    pending. Tensors that the module refers to (parameters, buffers, constants)
    are kept for later calls; if they are pending they are launched first.

    The function updates in place what the module updates in place: a buffer
    that nobody else holds is donated to its next value, any other is copied.
    It gives what the module returns, not differentiable. Arguments with other
    shapes, strides, dtypes, sharing or values are compiled when they come, up
    to 8 kinds; others are recorded.

    An op that has no form in a graph (random numbers, a shape that depends on
    data, a read, an op of CPU tensors) splits the graph: it runs by itself
    between two compiled ones, which are then compiled at the first call. The
    counter `BridgeSplit` counts how often such an op ran. A graph that can't
    be compiled at all runs op by op on the lazy device, with the same results;
    `BridgeFallback` counts those calls. Inside
    `torch_spool.compile(full_graph=True)` the module is recorded, so that the
    region stays one graph.
    """
    if not isinstance(fx_module, fx.GraphModule):
        raise TypeError(
            "[extract_compiled_graph] expected a torch.fx.GraphModule, got "
            f"{type(fx_module).__name__}; torch.fx.symbolic_trace makes one"
        )
    compiled = _CompiledGraph(fx_module)
    compiled.prepare(tuple(args))
    return compiled


class _CompiledGraph:
    """An FX graph with the graphs extracted from it, one per kind of arguments."""

    def __init__(self, module: fx.GraphModule) -> None:
        self._module = module
        self._graphs: list[tuple[_C.BridgeCallable, Callable[[list[Any]], Any]]] = []
        self._split: _SplitGraph | None = None
        self._refused = False

    def __call__(self, *args: Any) -> Any:
        if _C.in_full_graph():
            return self._record(args)
        for graph, build in self._graphs:
            outputs = graph.run(args)
            if outputs is not NotImplemented:
                return build(outputs)
        known = len(self._graphs)
        self.prepare(args)
        if self._split is not None and self._split.takes(args):
            return self._split(*args)
        for graph, build in self._graphs[known:]:
            outputs = graph.run(args)
            if outputs is not NotImplemented:
                return build(outputs)
        _C.bridge_count_fallback()
        return self._record(args)

    def _record(self, args: tuple[Any, ...]) -> Any:
        with torch.no_grad():
            return self._module(*args)

    def prepare(self, args: tuple[Any, ...]) -> None:
        """Extract a graph for ARGS, or split this one, if that can be done."""
        if self._refused or self._split is not None or len(self._graphs) >= _MAX_GRAPHS:
            return
        if not all(_can_take(one) for one in args):
            return
        between = _fx_split.run_between(self._module, args)
        if between.nodes:
            self._split = _SplitGraph(self._module, args, between)
            return
        try:
            self._graphs.append(_extract(self._module, args))
        except NotExtractable as error:
            if error.node is None:
                self._refused = True
            else:
                self._split = _SplitGraph(self._module, args, _fx_split.Between({error.node}))


class _SplitGraph:
    """A graph in parts: graphs that are compiled, with ops between them that run by themselves."""

    def __init__(self, module: fx.GraphModule, args: tuple[Any, ...], between: _fx_split.Between) -> None:
        self._on_cpu = _fx_split.on_cpu(args)
        self._parts = _fx_split.Parts(module, between, _CompiledGraph, _C.bridge_count_split)

    def takes(self, args: tuple[Any, ...]) -> bool:
        """Whether ARGS are on the devices that the graph was split for."""
        return _fx_split.on_cpu(args) == self._on_cpu

    def __call__(self, *args: Any) -> Any:
        with torch.no_grad():
            return self._parts(*args)


def _extract(
    module: fx.GraphModule, args: tuple[Any, ...]
) -> tuple[_C.BridgeCallable, Callable[[list[Any]], Any]]:
    kept = list(_kept_tensors(module))
    _C.bridge_launch_pending([tensor for tensor in kept if tensor.device.type == "xla"])
    inputs = [_on_device(one) for one in (*args, *kept)]
    recording = _C.BridgeRecording()
    graph = failure = None
    recorder = None
    try:
        with torch.no_grad():
            stand_ins = [recording.stand_in(one) if isinstance(one, Tensor) else one for one in inputs]
            of_kept = {id(tensor): stand_in for tensor, stand_in in zip(kept, stand_ins[len(args) :])}
            recorder = _Recorder(module, of_kept)
            outputs, spec = pytree.tree_flatten(recorder.run(*stand_ins[: len(args)]))
            recorder.env.clear()
            recorder.running = None
            graph = recording.finish([one for one in outputs if _is_lazy(one)])
    except Exception as error:
        failure = error
    finally:
        reason = recording.close()
    if graph is None:
        try:
            if reason and not isinstance(failure, NotExtractable):
                raise NotExtractable(reason, recorder and recorder.running) from failure
            assert failure is not None
            raise failure
        finally:
            failure = (
                None  # else this frame and the traceback would keep each other, and the stand-ins, alive
            )
    places = iter(range(len(outputs)))
    described = tuple((next(places),) if _is_lazy(one) else one for one in outputs)
    return _C.BridgeCallable(graph, args, kept, described), _builder(spec)


def _can_take(arg: Any) -> bool:
    """Whether ARG can be an argument of a compiled graph: a plain tensor, or a value that holds none."""
    if isinstance(arg, Tensor):
        return _C.bridge_can_take(arg)
    return not any(isinstance(one, Tensor) for one in pytree.tree_leaves(arg))


def _is_lazy(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type == "xla"


def _on_device(value: Any) -> Any:
    """VALUE, if it is a tensor of the CPU, as one of the device."""
    return _C.bridge_upload(value) if isinstance(value, Tensor) and not _is_lazy(value) else value


def _builder(spec: pytree.TreeSpec) -> Callable[[list[Any]], Any]:
    """What makes the module's result of a list of its leaves."""
    if spec.is_leaf():
        return operator.itemgetter(0)
    if spec.type in (tuple, list) and all(child.is_leaf() for child in spec.children()):
        return spec.type
    return lambda leaves: pytree.tree_unflatten(leaves, spec)


def _kept_tensors(module: fx.GraphModule) -> Iterator[Tensor]:
    """What the graph refers to: each tensor once."""
    seen: set[int] = set()
    for node in module.graph.nodes:
        if node.op not in ("get_attr", "call_module"):
            continue
        value = operator.attrgetter(node.target)(module)
        if isinstance(value, torch.nn.Module):
            found = [*value.parameters(), *value.buffers()]
        else:
            found = [value]
        for one in found:
            if isinstance(one, Tensor) and id(one) not in seen:
                if not _C.bridge_can_take(one):
                    raise NotExtractable(f"{node.target} is no plain tensor")
                seen.add(id(one))
                yield one


class _Recorder(fx.Interpreter):
    """Runs a graph on stand-ins and knows where it is.

    A tensor of the CPU has a stand-in on the device; that is no difference for
    ops of the device, and the graph holds no others.
    """

    def __init__(self, module: fx.GraphModule, of_kept: dict[int, Tensor]) -> None:
        super().__init__(module)
        self._of_kept = of_kept
        self._drawn_from = torch.get_rng_state()
        self.running: fx.Node | None = None

    def fetch_attr(self, target: str) -> Any:
        value = super().fetch_attr(target)
        return self._of_kept.get(id(value), value)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # A copy on the stand-ins: the module itself stays as it is, for other threads as well.
        module = copy.deepcopy(super().fetch_attr(target), dict(self._of_kept))
        return module(*args, **kwargs)

    def run_node(self, n: fx.Node) -> Any:
        self.running = n if n.op.startswith("call") else None
        value = super().run_node(n)
        if self.running is not None and not torch.equal(self._drawn_from, torch.get_rng_state()):
            torch.set_rng_state(self._drawn_from)
            raise NotExtractable(f"{n.target} draws random numbers", n)
        return value


def compile_fx(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
    """MODULE as AOTAutograd calls it: with a list of arguments, which it empties.

    Compiled at the first call, whose arguments say what shares storage.
    """
    compiled = _CompiledGraph(module)

    def call(args: list[Any]) -> Any:
        taken = tuple(args)
        args.clear()
        return compiled(*taken)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def register_backends() -> None:
    """Make "openxla" and "spool" backends of `torch.compile`. Imports `torch._dynamo`."""
    from torch._dynamo.backends import registry
    from torch._dynamo.backends.common import aot_autograd

    # Updates of inputs stay in the graph, so that their buffers are donated there.
    backend = aot_autograd(fw_compiler=compile_fx, keep_inference_input_mutations=True)
    for name in ("openxla", "spool"):
        registry._COMPILER_FNS.pop(name, None)
        registry.register_backend(backend, name=name)

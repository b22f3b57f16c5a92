"""Splits an FX graph at ops that can't be in a compiled graph, and runs the parts in turn."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx


def on_cpu(args: tuple[Any, ...]) -> tuple[bool, ...]:
    """Which of ARGS are tensors of the CPU."""
    return tuple(isinstance(one, Tensor) and one.device.type == "cpu" for one in args)


class Between:
    """The nodes of a graph that run by themselves, between compiled parts.

    `nodes` are all of them. Of these, `early` may run before everything else and
    `late` after it: they are ops of the CPU and their writes, which would else
    make many small parts.
    """

    def __init__(self, nodes: set[fx.Node]) -> None:
        self.nodes = nodes
        self.early: list[fx.Node] = []
        self.late: list[fx.Node] = []


def run_between(module: fx.GraphModule, args: tuple[Any, ...]) -> Between:
    """The nodes of MODULE that no compiled graph can hold, as far as that is known before a run.

    Those draw random numbers, or work on tensors of the CPU alone. The output
    node is among them if it returns such a tensor.
    """
    between = Between(set())
    host: set[fx.Node] = set()
    places = iter(on_cpu(args))
    in_order = True  # nothing but writes to tensors of the CPU follows the first of these writes
    for node in module.graph.nodes:
        inputs = node.all_input_nodes
        if node.op == "placeholder":
            if next(places, False):
                host.add(node)
            continue
        if node.op == "get_attr":
            value = operator.attrgetter(str(node.target))(module)
            if isinstance(value, Tensor) and value.device.type == "cpu":
                host.add(node)
            continue
        if node.op == "output":
            if host.intersection(inputs):
                between.nodes.add(node)
            continue
        only_host = bool(inputs) and host.issuperset(inputs) and not _names_lazy_device(node)
        to_host = _writes(node) and bool(node.args) and node.args[0] in host
        if only_host:
            host.add(node)
        if only_host or to_host:
            between.nodes.add(node)
            needed = [one for one in inputs if one.op == "get_attr" and one not in between.nodes]
            between.nodes.update(needed)
            (between.late if to_host else between.early).extend([*needed, node])
        elif _is_random(node):
            between.nodes.add(node)
        if between.late and not to_host and host.intersection(inputs):
            in_order = False
        if (only_host and _is_random(node)) or (to_host and not only_host):
            in_order = (
                False  # numbers are drawn in the program's order; the device's value may change afterwards
            )
    if not in_order:
        between.early, between.late = [], []
    return between


def _is_random(node: fx.Node) -> bool:
    op = node.target
    return isinstance(op, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in op.tags


def _names_lazy_device(node: fx.Node) -> bool:
    """Whether NODE puts its result on a device that it names, and it is the lazy one."""
    return any(
        (isinstance(one, torch.device) and one.type == "xla")
        or (isinstance(one, str) and one.startswith("xla"))
        for one in (*node.args, *node.kwargs.values())
    )


def _writes(node: fx.Node) -> bool:
    """Whether NODE may update its first argument in place."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name.endswith("_") and not name.endswith("__")


def _gives_tuple(node: fx.Node) -> bool:
    """Whether NODE is known to give several tensors, from which its users take theirs."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    returns = node.target._schema.returns
    return len(returns) > 1 or (len(returns) == 1 and isinstance(returns[0].type, torch.ListType))


def _in_order(graph: fx.Graph, between: Between) -> list[fx.Node]:
    """The nodes to run, in an order that makes few parts.

    What is taken from a tuple follows the op that makes the tuple, so that no
    tuple passes from part to part.
    """
    moved = {*between.early, *between.late}
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output") and node not in moved]
    nodes = [*between.early, *nodes, *between.late]
    ordered: dict[fx.Node, None] = {}

    def put(node: fx.Node) -> None:
        ordered[node] = None
        for user in node.users if _gives_tuple(node) else ():
            if user.target is operator.getitem and user.all_input_nodes == [node] and user not in ordered:
                if node in between.nodes:
                    between.nodes.add(user)
                put(user)

    for node in nodes:
        if node not in ordered:
            put(node)
    return list(ordered)


class Parts:
    """A split graph, as a function of the graph's arguments."""

    def __init__(
        self,
        module: fx.GraphModule,
        between: Between,
        compile_part: Callable[[fx.GraphModule], Callable[..., Any]],
        count: Callable[[], None],
    ) -> None:
        """COMPILE_PART makes a function of a part, which gives a tuple; COUNT is called for each op that runs by itself."""
        self._module = module
        self._count = count
        self._placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        (self._output,) = (node for node in module.graph.nodes if node.op == "output")
        order = _in_order(module.graph, between)
        runs: list[list[fx.Node]] = []
        for node in order:
            if node in between.nodes or not runs or runs[-1][-1] in between.nodes:
                runs.append([])
            runs[-1].append(node)
        last_use = {one: i for i, run in enumerate(runs) for node in run for one in node.all_input_nodes}
        last_use.update(dict.fromkeys(self._output.all_input_nodes, len(runs)))
        # Each step: what runs, what it takes, what it gives, and what nobody needs afterwards.
        self._steps: list[tuple[Any, list[fx.Node], list[fx.Node], list[fx.Node]]] = []
        for i, run in enumerate(runs):
            gives = [node for node in run if last_use.get(node, -1) > i]
            done = [node for node, last in last_use.items() if last == i and node not in run]
            if run[0] in between.nodes:
                self._steps.append((run[0], [], gives, done))
            else:
                part, takes = _part(module, run, gives)
                self._steps.append((compile_part(part), takes, gives, done))

    def __call__(self, *args: Any) -> Any:
        env: dict[fx.Node, Any] = dict(zip(self._placeholders, args))
        for runs, takes, gives, done in self._steps:
            if isinstance(runs, fx.Node):
                if runs.target is not operator.getitem:
                    self._count()
                value = self._run(runs, env)
                if gives:
                    env[runs] = value
            else:
                env.update(zip(gives, runs(*(env[node] for node in takes))))
            for node in done:
                env.pop(node, None)
        return fx.node.map_arg(self._output.args[0], env.__getitem__)

    def _run(self, node: fx.Node, env: dict[fx.Node, Any]) -> Any:
        args = fx.node.map_arg(node.args, env.__getitem__)
        kwargs = fx.node.map_arg(node.kwargs, env.__getitem__)
        if node.op == "get_attr":
            return operator.attrgetter(str(node.target))(self._module)
        if node.op == "call_module":
            return self._module.get_submodule(str(node.target))(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return node.target(*args, **kwargs)  # type: ignore[operator]


def _part(
    module: fx.GraphModule, nodes: list[fx.Node], gives: list[fx.Node]
) -> tuple[fx.GraphModule, list[fx.Node]]:
    """NODES as a module that gives a tuple of GIVES; with the nodes whose values it takes."""
    own = set(nodes)
    takes = list(dict.fromkeys(one for node in nodes for one in node.all_input_nodes if one not in own))
    graph = fx.Graph()
    made = {node: graph.placeholder(node.name) for node in takes}
    for node in nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[node] for node in gives))
    return fx.GraphModule(module, graph), takes

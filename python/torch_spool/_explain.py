"""Why something compiled or broke a graph: `explain()` and the report that it gives."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from types import TracebackType
from typing import Any

from ._api import wait_device_ops
from ._load import _C


@dataclass(frozen=True)
class Place:
    """A line of the user's program.

    An operation's place is that of its first recording: a tape that is known is followed without looking.
    """

    file: str
    line: int
    scope: str = ""
    stack: tuple[str, ...] = ()  # frames, innermost first; empty if it was recorded before `explain()`

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.file else "unknown line"
        return f"{where} ({self.scope})" if self.scope else where


@dataclass(frozen=True)
class Compile:
    """One compile: of which graph, where, and why."""

    graph: int
    region: str
    cause: str  # of the cut
    where: Place | None  # of the cut
    milliseconds: float
    kind: str  # first, dropped, ahead, op, argument, wiring, longer, shorter, live or engine
    reason: str
    nearest: int  # the earlier graph that has most in common with it; 0: none
    common: int  # operations that both have in common, from the first on
    ops: int
    op: str  # the operation that differs
    op_where: Place | None
    earlier_where: Place | None  # the line of the earlier graph's operation in its place


@dataclass(frozen=True)
class Cut:
    """A place where tapes were cut, COUNT times."""

    region: str
    cause: str
    where: str
    stack: tuple[str, ...]
    breaks: bool  # inside a region and not at its end
    count: int


@dataclass(frozen=True)
class RegionUse:
    """What a region cost. Times are milliseconds; `running` is on the runtime's thread, beside the others."""

    name: str
    entries: int
    launches: int
    compiles: int
    graphs: tuple[int, ...]
    inside: float
    compiling: float
    running: float


@dataclass(frozen=True)
class Node:
    """One operation of a graph. READS and MAKES are numbers of values."""

    op: str
    text: str
    body: str  # of a fused operation: its kernel
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    where: Place | None
    milliseconds: float | None  # of one run, on average; None: it was not timed


@dataclass(frozen=True)
class Buffer:
    """A place in the plan's memory, and between which nodes it is needed."""

    kind: str  # input, output or arena
    offset: int
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Graph:
    """A compiled graph, after all passes."""

    number: int
    engine: str
    text: str
    nodes: tuple[Node, ...]
    values: tuple[tuple[str, int], ...]  # dtype and sizes; bytes
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    buffers: tuple[Buffer, ...]
    arena_bytes: int
    runs: int = 0
    milliseconds: float = 0.0  # of all runs


def _place(raw: dict[str, Any] | None) -> Place | None:
    if raw is None:
        return None
    return Place(raw["file"], raw["line"], raw["scope"], tuple(raw["stack"].splitlines()))


def _graph(raw: dict[str, Any], run: tuple[int, float, list[tuple[str, int, float]]] | None) -> Graph:
    runs, total, steps = run or (0, 0.0, [])
    by_line: dict[tuple[str, int], float] = {}
    for op, key, spent in steps:
        by_line[op, key] = by_line.get((op, key), 0.0) + spent
    sharing = Counter((node["op"], node["key"]) for node in raw["nodes"])  # a line's time is shared equally
    nodes = tuple(
        Node(
            node["op"],
            node["text"],
            node["body"],
            tuple(node["reads"]),
            tuple(node["makes"]),
            _place(node["location"]),
            by_line[node["op"], node["key"]] / runs / sharing[node["op"], node["key"]]
            if node["key"] and (node["op"], node["key"]) in by_line
            else None,
        )
        for node in raw["nodes"]
    )
    return Graph(
        raw["number"],
        raw["engine"],
        raw["text"],
        nodes,
        tuple(raw["values"]),
        tuple(raw["inputs"]),
        tuple(raw["outputs"]),
        tuple(Buffer(*buffer) for buffer in raw["buffers"]),
        raw["arena_bytes"],
        runs,
        total,
    )


@dataclass
class Report:
    """What `explain()` has seen. Complete when its `with` has ended; `str()` is the table.

    A plan is reported with its graph also if it was compiled before, but then
    without a reason: the reason stands at the compile.
    """

    compiles: list[Compile] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    regions: list[RegionUse] = field(default_factory=list)
    graphs: dict[int, Graph] = field(default_factory=dict)

    def _fill(self, raw: dict[str, Any]) -> None:
        places = ("where", "op_where", "earlier_where")
        self.compiles = [
            Compile(**{key: _place(value) if key in places else value for key, value in one.items()})
            for one in raw["compiles"]
        ]
        self.cuts = [
            Cut(region, cause, where, tuple(stack.splitlines()), breaks, count)
            for region, cause, where, stack, breaks, count in raw["cuts"]
        ]
        self.regions = [
            RegionUse(name, entries, launches, compiles, tuple(sorted(graphs)), *times)
            for name, (entries, launches, compiles, graphs, *times) in raw["regions"].items()
        ]
        self.graphs = {
            number: _graph(graph, raw["runs"].get(number)) for number, graph in sorted(raw["graphs"].items())
        }

    def __str__(self) -> str:
        return self.table()

    def table(self) -> str:
        """Regions, compiles with their reasons, and cuts, as tables for a terminal."""
        parts = [
            _table(
                ("region", "entries", "launches", "graphs", "compiles", "inside", "compiling", "running"),
                [
                    (
                        use.name,
                        use.entries,
                        use.launches,
                        len(use.graphs),
                        use.compiles,
                        _time(use.inside),
                        _time(use.compiling),
                        _time(use.running),
                    )
                    for use in self.regions
                ],
                "nothing was launched",
            ),
            _table(
                ("graph", "ops", "took", "in region", "why it was compiled"),
                [
                    (one.graph, one.ops, _time(one.milliseconds), one.region, one.reason)
                    for one in self.compiles
                ],
                "nothing was compiled",
            ),
            _table(
                ("cuts", "cause", "at", "in region", "breaks its graph"),
                [
                    (cut.count, cut.cause, cut.where, cut.region, "yes" if cut.breaks else "no")
                    for cut in self.cuts
                ],
                "nothing was cut",
            ),
        ]
        return "\n\n".join(parts)

    def text(self) -> str:
        """All there is: the tables, for each compile its stacks, and each graph's text."""
        parts = [self.table()]
        for one in self.compiles:
            lines = [f"graph {one.graph} in '{one.region}': {one.reason}"]
            for what, place in ((one.op or "the op", one.op_where), ("the cut", one.where)):
                if place is not None and place.stack:
                    lines += [f"  {what} was recorded at" if place is one.op_where else f"  {what} was at"]
                    lines += [f"    {frame}" for frame in place.stack]
            parts.append("\n".join(lines))
        for graph in self.graphs.values():
            parts.append(f"graph {graph.number}, {_cost(graph)}\n{graph.text.rstrip()}")
        return "\n\n".join(parts) + "\n"

    def _chosen(self, call: str, number: int | None) -> Graph:
        if not self.graphs:
            raise ValueError(f"[{call}] the report has no graph: nothing was launched inside explain()")
        if number is None:
            return max(self.graphs.values(), key=lambda graph: graph.number)
        if number not in self.graphs:
            raise ValueError(f"[{call}] expected one of the graphs {sorted(self.graphs)}, got {number}")
        return self.graphs[number]

    def dot(self, graph: int | None = None) -> str:
        """A graph (by its number; by default the newest one) in Graphviz's language."""
        from ._explain_html import dot

        return dot(self._chosen("dot", graph))

    def html(self, path: str | PathLike[str]) -> None:
        """Write all of it to PATH as one page that needs nothing else: tables, graphs, memory, times."""
        from ._explain_html import page

        with open(path, "w", encoding="utf-8") as file:
            file.write(page(self))


class explain:
    """A context manager that explains what compiles and what cuts inside it.

        with torch_spool.explain() as report:
            train()
        print(report)                    # tables
        report.html("report.html")       # with the graphs drawn

    For each compile the report says why: that it was the first, or which
    earlier graph is nearest and which operation differs first, how, and at
    which line. For each cut it has the cause and the line, for each region the
    number of graphs and compiles and the time spent. What several threads do
    inside is all in it; contexts may be nested.

    At its end it waits for what was launched, so that the times are complete.
    While it is open, recording a known step costs a few per cent more.
    """

    def __enter__(self) -> Report:
        self._session = _C.ExplainSession()
        self._report = Report()
        return self._report

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                wait_device_ops()
        finally:
            self._session.stop()
            self._report._fill(self._session.report())


def _time(milliseconds: float) -> str:
    if milliseconds < 1:
        return f"{milliseconds * 1000:.0f} µs"
    return f"{milliseconds:.1f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.2f} s"


def _size(nbytes: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.1f} {unit}"
    return f"{nbytes} B"


def _cost(graph: Graph) -> str:
    """What a graph is, in a few words."""
    words = f"{len(graph.nodes)} ops for engine {graph.engine}, arena of {_size(graph.arena_bytes)}"
    if graph.runs:
        runs = "1 run" if graph.runs == 1 else f"{graph.runs} runs"
        words += f", {runs} of {_time(graph.milliseconds / graph.runs)}"
    return words


def _table(head: Sequence[str], rows: Sequence[Sequence[object]], none: str) -> str:
    if not rows:
        return none
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    number: list[Callable[[str, int], str]] = [
        str.rjust if all(isinstance(row[column], int) for row in rows) else str.ljust
        for column in range(len(head))
    ]
    lines = [
        "  ".join(align(cell, width) for align, cell, width in zip(number, row, widths, strict=True)).rstrip()
        for row in cells
    ]
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(lines)

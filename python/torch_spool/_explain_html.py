"""How a report of `explain()` is drawn: one HTML page, and graphs in Graphviz's language."""

from collections import defaultdict
from collections.abc import Iterable
from html import escape

from ._explain import Buffer, Graph, Node, Place, Report, _cost, _size, _time

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #1b1f24; background: #fff; margin: 2em auto; max-width: 1200px; padding: 0 1em }
h1 { font-size: 1.5em } h2 { font-size: 1.2em; margin-top: 2em } h3 { font-size: 1em; margin: 1.4em 0 .4em }
table { border-collapse: collapse; width: 100% } th { text-align: left; border-bottom: 2px solid #c9d1d9 }
td, th { padding: .3em .7em .3em 0; vertical-align: top } td { border-bottom: 1px solid #eaeef2 }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
code, pre, svg text { font-family: ui-monospace, monospace } pre { background: #f6f8fa; padding: .8em; overflow: auto; font-size: 12px }
code { overflow-wrap: anywhere } .quiet { color: #59636e } .scroll { overflow: auto; border: 1px solid #d1d9e0; border-radius: 6px }
summary { cursor: pointer } details { margin: .3em 0 } .key span { display: inline-block; width: .9em; height: .9em; margin: 0 .3em 0 1em }
"""
_BOX = (176, 36)  # of an operation's box
_GAP = (18, 34)
_ACROSS = 8  # boxes in a row; wider ranks are broken into several rows
_KINDS = {"input": "#9ec5fe", "output": "#a3cfbb", "arena": "#ffd8a8"}


def page(report: Report) -> str:
    """The whole report as a page that needs no other file."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><title>Spool: what compiled, and why</title>',
        f"<style>{_STYLE}</style></head><body><h1>What compiled, and why</h1>",
        _regions(report),
        _compiles(report),
        _cuts(report),
    ]
    parts += [_graph_section(graph) for graph in report.graphs.values()]
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _html_table(head: Iterable[tuple[str, bool]], rows: Iterable[Iterable[str]], none: str) -> str:
    """HEAD says of each column whether it holds numbers; cells are HTML already."""
    columns = list(head)
    body = [
        "<tr>"
        + "".join(
            f'<td class="n">{cell}</td>' if number else f"<td>{cell}</td>"
            for (_, number), cell in zip(columns, row, strict=True)
        )
        + "</tr>"
        for row in rows
    ]
    if not body:
        return f'<p class="quiet">{escape(none)}</p>'
    titles = "".join(
        f'<th class="n">{title}</th>' if number else f"<th>{title}</th>" for title, number in columns
    )
    return f"<table><tr>{titles}</tr>{''.join(body)}</table>"


def _code(text: object) -> str:
    return f"<code>{escape(str(text))}</code>"


def _link(number: int) -> str:
    return f'<a href="#graph-{number}">{number}</a>'


def _stack(title: str, place: Place | None) -> str:
    if place is None or not place.stack:
        return ""
    frames = escape("\n".join(place.stack))
    return f'<details><summary class="quiet">{escape(title)}</summary><pre>{frames}</pre></details>'


def _regions(report: Report) -> str:
    head = [
        ("region", False),
        ("entries", True),
        ("launches", True),
        ("graphs", True),
        ("compiles", True),
        ("inside", True),
        ("compiling", True),
        ("running", True),
    ]
    rows = [
        [
            _code(use.name),
            str(use.entries),
            str(use.launches),
            str(len(use.graphs)),
            str(use.compiles),
            _time(use.inside),
            _time(use.compiling),
            _time(use.running),
        ]
        for use in report.regions
    ]
    return "<h2>Regions</h2>" + _html_table(head, rows, "Nothing was launched.")


def _compiles(report: Report) -> str:
    head = [
        ("graph", True),
        ("ops", True),
        ("took", True),
        ("in region", False),
        ("why it was compiled", False),
    ]
    rows = [
        [
            _link(one.graph),
            str(one.ops),
            _time(one.milliseconds),
            _code(one.region),
            escape(one.reason)
            + _stack(f"stack of {one.op}", one.op_where)
            + _stack(f"stack of the cut ({one.cause})", one.where),
        ]
        for one in report.compiles
    ]
    return "<h2>Compiles</h2>" + _html_table(head, rows, "Nothing was compiled.")


def _cuts(report: Report) -> str:
    head = [("cuts", True), ("cause", False), ("at", False), ("in region", False)]
    rows = [
        [
            str(cut.count),
            escape(cut.cause) + (" <strong>breaks its graph</strong>" if cut.breaks else ""),
            _code(cut.where) + _stack("stack", Place("", 0, stack=cut.stack)),
            _code(cut.region),
        ]
        for cut in report.cuts
    ]
    return "<h2>Cuts</h2>" + _html_table(head, rows, "Nothing was cut.")


def _graph_section(graph: Graph) -> str:
    return "\n".join(
        [
            f'<h2 id="graph-{graph.number}">Graph {graph.number}</h2><p>{escape(_cost(graph))}</p>',
            f'<h3>Operations</h3><div class="scroll">{_drawing(graph)}</div>',
            _times(graph),
            "<h3>Memory over time</h3>",
            _memory(graph),
            f"<details><summary>Text of the graph</summary><pre>{escape(graph.text)}</pre></details>",
        ]
    )


# --- the graph ---


def _short(op: str) -> str:
    return op.removeprefix("aten::")


def _made(graph: Graph, node: Node) -> str:
    """What a node's first result is, if it has one."""
    return graph.values[node.makes[0]][0] if node.makes else ""


def _is_fused(node: Node) -> bool:
    return bool(node.body) or node.op == "spool::fused"


def _hint(node: Node) -> str:
    lines = [node.text, f"at {node.where}" if node.where else ""]
    if node.milliseconds is not None:
        lines.append(f"{_time(node.milliseconds)} a run")
    return "\n".join(line for line in [*lines, node.body.rstrip()] if line)


def _edges(graph: Graph) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Pairs (node, node) and pairs (input, node): what reads what."""
    maker = {value: index for index, node in enumerate(graph.nodes) for value in node.makes}
    given = {value: index for index, value in enumerate(graph.inputs)}
    inner, outer = [], []
    for index, node in enumerate(graph.nodes):
        inner += [(maker[value], index) for value in node.reads if value in maker and maker[value] != index]
        outer += [(given[value], index) for value in node.reads if value in given]
    return sorted(set(inner)), sorted(set(outer))


def _rows(graph: Graph, edges: list[tuple[int, int]]) -> list[list[int]]:
    """Nodes by rows, so that each stands below what it reads, and near to it."""
    before, after = defaultdict(list), defaultdict(list)
    for source, target in edges:
        before[target].append(source)
        after[source].append(target)
    rank: dict[int, int] = {}
    for node in range(len(graph.nodes)):  # they come in an order in which that is known
        rank[node] = max((rank[source] + 1 for source in before[node]), default=0)
    for node in range(len(graph.nodes)):
        if not before[node] and after[node]:  # what needs nothing stands where it is needed
            rank[node] = max(0, min(rank[target] for target in after[node]) - 1)
    ranks: dict[int, list[int]] = defaultdict(list)
    for node, at in rank.items():
        ranks[at].append(node)
    rows, across = [], {}
    for at in sorted(ranks):
        nodes = sorted(
            ranks[at],
            key=lambda node: (
                sum(across[source] for source in before[node]) / len(before[node]) if before[node] else 0.0,
                node,
            ),
        )
        for start in range(0, len(nodes), _ACROSS):
            row = nodes[start : start + _ACROSS]
            rows.append(row)
            for position, node in enumerate(row):
                across[node] = position - (len(row) - 1) / 2
    return rows


def _drawing(graph: Graph) -> str:
    inner, outer = _edges(graph)
    rows = _rows(graph, inner)
    width = max((len(row) for row in rows), default=1) * (_BOX[0] + _GAP[0]) + _GAP[0]
    height = len(rows) * (_BOX[1] + _GAP[1]) + _GAP[1]
    at: dict[int, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        left = (width - len(row) * (_BOX[0] + _GAP[0]) + _GAP[0]) / 2
        for position, node in enumerate(row):
            at[node] = (left + position * (_BOX[0] + _GAP[0]), _GAP[1] + number * (_BOX[1] + _GAP[1]))
    slowest = max((node.milliseconds or 0.0 for node in graph.nodes), default=0.0)
    outputs = set(graph.outputs)
    inputs_of = defaultdict(list)
    for source, target in outer:
        inputs_of[target].append(graph.inputs[source])
    parts = [
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">',
        '<g fill="none" stroke="#8c959f" stroke-width="1.2">',
    ]
    for source, target in inner:
        x1, y1 = at[source][0] + _BOX[0] / 2, at[source][1] + _BOX[1]
        x2, y2 = at[target][0] + _BOX[0] / 2, at[target][1]
        bend = max(14.0, (y2 - y1) / 2)
        parts.append(
            f'<path d="M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}"/>'
        )
    parts.append('</g><g font-size="11">')
    for index, node in enumerate(graph.nodes):
        x, y = at[index]
        heat = (node.milliseconds or 0.0) / slowest if slowest else 0.0
        red, green, blue = 255 - round(6 * heat), 251 - round(130 * heat), 240 - round(150 * heat)
        border = "#8250df" if _is_fused(node) else "#57606a"
        given = ", ".join(f"%{value} {graph.values[value][0]}" for value in inputs_of[index])
        hint = _hint(node) + (f"\ninputs: {given}" if given else "")
        title = f"{_short(node.op)[:19]}{' ◂' + str(len(inputs_of[index])) if inputs_of[index] else ''}"
        below = _made(graph, node)[:23]
        wide = 2 if outputs.intersection(node.makes) or _is_fused(node) else 1
        parts.append(
            f'<g><title>{escape(hint)}</title><rect x="{x:.0f}" y="{y:.0f}" width="{_BOX[0]}" height="{_BOX[1]}" rx="5" '
            f'fill="rgb({red},{green},{blue})" stroke="{border}" stroke-width="{wide}"/>'
            f'<text x="{x + 8:.0f}" y="{y + 15:.0f}" font-weight="600">{escape(title)}</text>'
            f'<text x="{x + 8:.0f}" y="{y + 29:.0f}" fill="#59636e">{escape(below)}</text></g>'
        )
    parts.append("</g></svg>")
    legend = (
        '<p class="quiet">The warmer, the slower. A thick border: an output of the graph; violet: a fused kernel. '
        "◂ n: reads n inputs of the graph. Point at a box for its line, shapes and kernel.</p>"
    )
    return "".join(parts) + legend


def _times(graph: Graph) -> str:
    timed = [node for node in graph.nodes if node.milliseconds is not None]
    if not timed:
        return '<h3>Times</h3><p class="quiet">It was not run.</p>'
    total = sum(node.milliseconds or 0.0 for node in timed)
    slow = sorted(timed, key=lambda node: -(node.milliseconds or 0.0))[:30]
    head = [("operation", False), ("a run", True), ("share", True), ("at", False)]
    rows = [
        [
            _code(_short(node.op)) + " " + _code(_made(graph, node)),
            _time(node.milliseconds or 0.0),
            f"{100 * (node.milliseconds or 0.0) / total:.1f} %" if total else "–",
            _code(node.where or ""),
        ]
        for node in slow
    ]
    return f"<h3>Times: the slowest {len(slow)} of {len(timed)}</h3>" + _html_table(head, rows, "")


# --- memory ---


def _span(buffer: Buffer, nodes: int) -> tuple[int, int]:
    """Between which nodes the buffer is needed, both included."""
    return max(buffer.first, 0), min(buffer.last, nodes - 1)


def held(graph: Graph) -> dict[str, list[int]]:
    """Bytes that each kind of buffer holds while each node runs."""
    nodes = len(graph.nodes)
    result = {kind: [0] * nodes for kind in _KINDS}
    for buffer in graph.buffers:
        first, last = _span(buffer, nodes)
        for node in range(first, last + 1):
            result[buffer.kind][node] += buffer.nbytes
    return result


def _memory(graph: Graph) -> str:
    nodes = len(graph.nodes)
    if not nodes:
        return '<p class="quiet">It has no operations.</p>'
    width, height, left = 1000, 170, 80
    by_kind = held(graph)
    sums = [sum(by_kind[kind][node] for kind in _KINDS) for node in range(nodes)]
    top = max(max(sums), 1)
    step = (width - left) / nodes
    parts = [
        f'<svg width="{width}" height="{height + 24}" xmlns="http://www.w3.org/2000/svg" font-size="11">'
    ]
    floor = [0] * nodes
    for kind, colour in _KINDS.items():
        roof = [below + size for below, size in zip(floor, by_kind[kind], strict=True)]
        upper = " ".join(
            f"{left + (node + side) * step:.1f},{height - roof[node] / top * (height - 12):.1f}"
            for node in range(nodes)
            for side in (0, 1)
        )
        lower = " ".join(
            f"{left + (node + side) * step:.1f},{height - floor[node] / top * (height - 12):.1f}"
            for node in reversed(range(nodes))
            for side in (1, 0)
        )
        parts.append(f'<polygon points="{upper} {lower}" fill="{colour}"><title>{kind}</title></polygon>')
        floor = roof
    peak = sums.index(max(sums))
    parts += [
        f'<text x="4" y="16">{_size(top)}</text><text x="4" y="{height}">0</text>',
        f'<text x="{left}" y="{height + 18}">first operation</text>',
        f'<text x="{width}" y="{height + 18}" text-anchor="end">last ({nodes})</text></svg>',
        '<p class="key quiet">'
        + "".join(f'<span style="background:{colour}"></span>{kind}' for kind, colour in _KINDS.items())
        + f" — most, {_size(top)}, while <code>{escape(_short(graph.nodes[peak].op))}</code> runs</p>",
    ]
    return "".join(parts) + _arena(graph, width, left, step)


def _arena(graph: Graph, width: int, left: int, step: float) -> str:
    """Each buffer of the arena as a box: its lifetime across, its place upwards."""
    boxes = [buffer for buffer in graph.buffers if buffer.kind == "arena" and buffer.nbytes]
    if not boxes:
        return '<p class="quiet">It needs no memory of its own.</p>'
    height = 170
    parts = [
        f'<h3>Places in the arena</h3><svg width="{width}" height="{height + 8}" xmlns="http://www.w3.org/2000/svg" font-size="11">',
        f'<text x="4" y="16">{_size(graph.arena_bytes)}</text><text x="4" y="{height}">0</text>',
        f'<rect x="{left}" y="4" width="{width - left}" height="{height - 4}" fill="#f6f8fa"/>',
    ]
    for buffer in boxes:
        first, last = _span(buffer, len(graph.nodes))
        tall = buffer.nbytes / graph.arena_bytes * (height - 4)
        low = buffer.offset / graph.arena_bytes * (height - 4)
        hint = f"{_size(buffer.nbytes)} at {buffer.offset}, from operation {first + 1} to {last + 1}"
        parts.append(
            f'<rect x="{left + first * step:.1f}" y="{height - low - tall:.1f}" width="{(last - first + 1) * step:.1f}" '
            f'height="{max(tall, 0.5):.1f}" fill="#ffd8a8" stroke="#bc4c00" stroke-width=".4"><title>{escape(hint)}</title></rect>'
        )
    return "".join(parts) + "</svg>"


# --- Graphviz ---


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\l") + '"'


def dot(graph: Graph) -> str:
    """The graph for Graphviz: operations as boxes, fused kernels with their program, inputs as ellipses."""
    inner, outer = _edges(graph)
    outputs = set(graph.outputs)
    lines = [
        f"digraph graph_{graph.number} {{",
        "  node [shape=box, fontname=monospace, fontsize=10];",
        f"  label={_quoted(f'graph {graph.number}: {_cost(graph)}')};",
    ]
    lines += [
        f"  i{index} [shape=ellipse, label={_quoted(f'%{value} {graph.values[value][0]}')}];"
        for index, value in enumerate(graph.inputs)
    ]
    for index, node in enumerate(graph.nodes):
        label = _short(node.op) + (f"\n{_made(graph, node)}" if node.makes else "")
        if _is_fused(node):
            label += f"\n{node.body}"
        style = ", penwidth=2" if outputs.intersection(node.makes) else ""
        style += ", color=purple" if _is_fused(node) else ""
        lines.append(f"  n{index} [label={_quoted(label)}, tooltip={_quoted(_hint(node))}{style}];")
    lines += [f"  i{source} -> n{target};" for source, target in outer]
    lines += [f"  n{source} -> n{target};" for source, target in inner]
    return "\n".join([*lines, "}"]) + "\n"

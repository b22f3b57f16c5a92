"""`explain()`: why something compiled, where tapes were cut, what regions cost, and how a report is shown."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import torch_spool
from helpers import run_program, same
from torch_spool import _C

HERE = str(Path(__file__).resolve())


def line_of(mark: str) -> int:
    """The number of the line of this file that ends in the comment `# MARK`."""
    lines = Path(HERE).read_text(encoding="utf-8").splitlines()
    (number,) = [i for i, line in enumerate(lines, 1) if line.endswith(f"  # {mark}")]
    return number


def test_the_first_graph_and_another_shape_are_told_apart(dev):
    def run(rows: int) -> torch.Tensor:
        with torch_spool.step():
            x = torch.full((rows, 7), 2.0, device=dev)
            return x * 3.25  # the shapes differ before this

    with torch_spool.explain() as report:
        for rows in (3, 3, 5):
            y = run(rows)
    same(y, torch.full((5, 7), 6.5))
    first, second = report.compiles
    assert first.kind == "first" and "first graph here" in first.reason
    assert second.kind == "argument" and second.nearest == first.graph and second.common == 0
    assert "'self' has shape [5, 7], where that had shape [3, 7]" in second.reason
    assert second.op_where is not None and second.op_where.file == HERE
    assert report.graphs[first.graph].runs == 2 and report.graphs[second.graph].runs == 1
    (region,) = report.regions
    assert (region.entries, region.launches, region.compiles) == (3, 3, 2)
    assert region.graphs == (first.graph, second.graph)
    assert region.inside > region.compiling > 0 and region.running > 0


def test_the_op_that_differs_comes_with_its_line_and_stack(dev):
    x = torch.ones(11, device=dev)
    torch_spool.sync(wait=True)

    def inner(other: bool) -> torch.Tensor:
        y = x.cos()
        return y.tanh() if other else y.exp()  # the op differs

    with torch_spool.explain() as report:
        for other in (False, True):
            with torch_spool.step():
                inner(other)  # called from here
    compile = report.compiles[-1]
    assert compile.kind == "op" and compile.op == "aten::tanh"
    place = compile.op_where
    assert place is not None and place.line == line_of("the op differs")
    assert place.stack[0] == f"{HERE}:{place.line} in inner"
    assert place.stack[1].startswith(f"{HERE}:{line_of('called from here')} in test_the_op_that_differs")
    assert f"aten::tanh at {HERE}:{place.line}, where that has aten::exp" in compile.reason
    assert place.stack[0] in report.text()


def test_when_only_what_is_held_differs_the_output_is_named(dev):
    x = torch.ones(13, device=dev)
    torch_spool.sync(wait=True)
    with torch_spool.explain() as report:
        for keep in (False, True):
            y = x.sin()  # the output
            z = y.exp()
            if not keep:
                del y
            torch_spool.sync()
    same(z, torch.ones(13).sin().exp())
    compile = report.compiles[-1]
    assert compile.kind == "live" and compile.op == "aten::sin"
    line = line_of("the output")
    assert f"the result of aten::sin at {HERE}:{line} is still held after the cut" in compile.reason


def test_another_tensor_in_the_same_place_is_named_by_where_it_comes_from(dev):
    x = torch.ones(17, device=dev)
    torch_spool.sync(wait=True)
    with torch_spool.explain() as report:
        for other in (False, True):
            y = x.cosh()
            (x if other else y).sinh_()
            torch_spool.sync()
    compile = report.compiles[-1]
    assert compile.kind == "wiring" and "where that was the result of aten::cosh" in compile.reason


def test_another_engine_is_a_reason(dev):
    x = torch.ones(19, device=dev)
    torch_spool.sync(wait=True)
    with torch_spool.explain() as report:
        y = x.erf()
        torch_spool.sync()
        _C.set_engine("reference")
        try:
            y = x.erf()
            torch_spool.sync()
        finally:
            _C.set_engine("native")
    same(y, torch.ones(19).erf())
    assert report.compiles[-1].kind == "engine" and "'reference'" in report.compiles[-1].reason


def test_each_cut_has_its_cause_line_and_count(dev):
    with torch_spool.explain() as report:
        for _ in range(3):
            with torch_spool.compile(name="reads"):
                x = torch.full((23,), 0.5, device=dev).sum()
                x.item()  # the read
                x = x + 1
    breaks = [cut for cut in report.cuts if cut.breaks]
    assert [(cut.cause, cut.count, cut.region) for cut in breaks] == [("a read", 3, "reads")]
    assert breaks[0].where.startswith(f"{HERE}:{line_of('the read')} (")
    (end,) = [cut for cut in report.cuts if cut.cause == "exit of compile()"]
    assert end.count == 3 and not end.breaks


def test_the_errors_of_limited_regions_carry_the_reason(dev):
    limited = torch_spool.compile(
        lambda t: t.asinh() * 2, name="limited", num_different_graphs_allowed=1
    )  # its line
    x, longer = torch.ones(29, device=dev), torch.ones(31, device=dev)
    torch_spool.sync(wait=True)
    limited(x)
    with torch_spool.explain() as report, pytest.raises(RuntimeError) as failure:
        limited(longer)
    message = str(failure.value)
    assert "num_different_graphs_allowed=1" in message
    assert "differs from graph" in message and "'self' has shape [31], where that had shape [29]" in message
    assert not report.compiles
    torch_spool.sync()
    whole = torch_spool.compile(lambda t: t.sum().item(), full_graph=True, name="whole")
    with pytest.raises(
        RuntimeError, match=r"graph of 'whole' is broken by a read at .*test_explain\.py:\d+ \("
    ):
        whole(x)
    torch_spool.sync()


def test_a_plan_from_before_is_shown_with_its_graph_and_runs(dev):
    def run() -> None:
        with torch_spool.step():
            y = torch.full((37,), 2.0, device=dev).log()
        same(y, torch.full((37,), 2.0).log())

    run()
    with torch_spool.explain() as report:
        run()
    assert not report.compiles
    (graph,) = report.graphs.values()
    assert graph.runs == 1 and graph.nodes


def test_nested_contexts_each_see_what_happens_inside_them(dev):
    x = torch.ones(41, device=dev)
    torch_spool.sync(wait=True)
    with torch_spool.explain() as outer:
        x.acos()
        y = x + 1
        torch_spool.sync()
        with torch_spool.explain() as inner:
            y = y.atan()
            torch_spool.sync()
    assert len(outer.compiles) == 2 and len(inner.compiles) == 1
    with torch_spool.explain() as nothing:
        pass
    assert not nothing.compiles and "nothing was compiled" in str(nothing)
    with pytest.raises(ValueError, match=r"^\[dot\] the report has no graph"):
        nothing.dot()


def trained(dev) -> torch_spool._explain.Report:
    model = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.GELU(), torch.nn.Linear(6, 3)).to(dev)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch_spool.explain() as report:
        for rows in (4, 4, 2):
            with torch_spool.step():
                optimiser.zero_grad()
                model(torch.ones(rows, 5, device=dev)).square().mean().backward()
                optimiser.step()
    return report


def test_the_page_needs_nothing_else_and_draws_every_op(dev, tmp_path):
    report = trained(dev)
    page = tmp_path / "report.html"
    report.html(page)
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=\"(?!#)", text) and "<script" not in text
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert drawings
    boxes = 0
    for drawing in drawings:
        boxes += len([e for e in ElementTree.fromstring(drawing).iter() if e.tag.endswith("}rect")])
    assert boxes >= sum(len(graph.nodes) for graph in report.graphs.values())
    for compile in report.compiles:
        assert f'id="graph-{compile.graph}"' in text


def test_memory_and_times_of_a_graph_are_those_of_its_plan(dev):
    from torch_spool._explain_html import held

    for graph in trained(dev).graphs.values():
        assert sum(node.milliseconds or 0 for node in graph.nodes) <= graph.milliseconds / graph.runs
        assert max(held(graph)["arena"]) <= graph.arena_bytes
        for buffer in graph.buffers:
            assert buffer.kind != "arena" or buffer.offset + buffer.nbytes <= graph.arena_bytes


def test_the_tables_text_and_dot_name_each_graph_and_region(dev):
    report = trained(dev)
    table = report.table()
    assert str(report) == table
    for compile in report.compiles:
        assert compile.reason in table and compile.region in table
        dot = report.dot(compile.graph)
        assert dot.startswith(f"digraph graph_{compile.graph} {{") and dot.endswith("}\n")
        assert len(re.findall(r"^  n\d+ \[", dot, re.MULTILINE)) == len(report.graphs[compile.graph].nodes)
        assert report.graphs[compile.graph].text.rstrip() in report.text()
    with pytest.raises(ValueError, match=r"^\[dot\] expected one of the graphs"):
        report.dot(10**9)


def test_the_log_says_why_each_graph_was_compiled():
    program = """
import torch, torch_spool
for n in (3, 4):
    with torch_spool.compile(name="logged"):
        x = torch.ones(n, device=torch_spool.device()) * 2
        x.sum().item()
"""
    lines = run_program(program, env={"SPOOL_LOG": "compile,break"}).stderr.splitlines()
    told = [line for line in lines if line.startswith("[spool] ")]
    assert sum("graph broken by a read at <string>:6" in line for line in told) == 2
    compiled = [line for line in told if line.startswith("[spool] compiled graph ")]
    assert "'logged'" in compiled[0] and "first graph here" in compiled[0]
    assert any("has shape [4], where that had shape [3]" in line for line in compiled[1:])

"""`step()`: two cuts, nesting, and what becomes of exceptions."""

import time

import pytest
import torch

import torch_spool
from helpers import compiles, count, executions, same
from torch_spool import _C
from torch_spool.debug import metrics


def test_work_pending_before_a_step_is_launched_at_entry_in_a_graph_of_its_own(dev):
    x = torch.arange(5.0).to(dev)
    torch_spool.sync(wait=True)
    metrics.clear_all()
    y = x + 1
    assert _C.tape_length() > 0
    with torch_spool.step():
        assert _C.tape_length() == 0
        z = y * 2
    assert executions() == 2
    same(y, torch.arange(5.0) + 1)
    same(z, (torch.arange(5.0) + 1) * 2)


def test_a_step_is_one_graph_and_what_follows_it_is_in_another(dev):
    x = torch.ones(3, device=dev)
    torch_spool.sync(wait=True)
    metrics.clear_all()
    with torch_spool.step():
        y = x * 3
        z = y - 1
    assert executions() == 1
    y += 1
    assert _C.tape_length() > 0
    torch_spool.sync()
    assert executions() == 2
    same(y, torch.full((3,), 4.0))
    same(z, torch.full((3,), 2.0))


def test_an_empty_step_launches_nothing(dev):
    with torch_spool.step():
        pass
    assert executions() == 0


@pytest.mark.parametrize("kind", [KeyError, RuntimeError, StopIteration, KeyboardInterrupt, SystemExit])
def test_an_exception_passes_through_a_step_as_the_same_object(dev, kind):
    weight = torch.ones(3, device=dev)
    error = kind("why")
    with pytest.raises(kind) as caught:
        with torch_spool.step():
            weight.add_(1)
            raise error
    assert caught.value is error
    assert not getattr(error, "__notes__", [])
    assert error.__cause__ is None and error.__context__ is None
    assert _C.tape_length() == 0, "what was recorded before the exception is launched"
    same(weight, torch.full((3,), 2.0))


def test_the_step_after_an_exception_runs_normally_and_hits_the_cache(dev):
    weight = torch.ones(3, 41, device=dev)

    def one(fail: bool) -> None:
        with torch_spool.step():
            weight.mul_(2)
            if fail:
                raise ValueError("half way")
            weight.sub_(0.5)

    one(False)
    with pytest.raises(ValueError, match="half way"):
        one(True)
    compiled = compiles()
    cached = count("CachedCompile")
    one(False)
    assert compiles() == compiled
    assert count("CachedCompile") == cached + 1
    want = torch.ones(3, 41).mul_(2).sub_(0.5).mul_(2).mul_(2).sub_(0.5)
    same(weight, want)


def test_a_failing_launch_becomes_a_note_of_the_exception_that_passes_through(dev, monkeypatch):
    x = torch.ones(4, device=dev)
    error = ValueError("the user's")
    leave = _C.step_end

    def fail(failed: bool) -> None:
        leave(failed)
        raise RuntimeError("[launch] no such luck")

    monkeypatch.setattr(_C, "step_end", fail)
    with pytest.raises(ValueError) as caught:
        with torch_spool.step():
            x.add_(1)
            raise error
    assert caught.value is error
    assert error.__notes__ == [
        "[step] launching what was recorded before this exception failed too: RuntimeError: [launch] no such luck"
    ]
    monkeypatch.undo()
    with torch_spool.step():
        x.add_(1)
    same(x, torch.full((4,), 3.0))


def test_an_earlier_graphs_failure_does_not_replace_the_exception_that_passes_through(dev):
    x = torch.arange(4.0).to(dev)
    far = torch.tensor([400]).to(dev)
    error = ValueError("the user's")
    with pytest.raises(ValueError) as caught:
        with torch_spool.step():
            bad = x.index_select(0, far)
            torch_spool._barrier()
            time.sleep(0.3)  # until it has failed; a wait would raise that here
            x.add_(1)
            raise error
    assert caught.value is error
    with pytest.raises((IndexError, RuntimeError)):
        bad.cpu()
    same(x, torch.arange(4.0) + 1)
    with torch_spool.step():
        y = torch.ones(2, device=dev) + 1
    same(y, torch.full((2,), 2.0))


def test_steps_nest_and_each_entry_and_exit_cuts(dev):
    x = torch.ones(2, device=dev)
    torch_spool.sync(wait=True)
    metrics.clear_all()
    with torch_spool.step():
        a = x + 1
        with torch_spool.step():
            b = a * 3
        c = b - 1
    assert executions() == 3
    same(c, torch.full((2,), 5.0))


def test_an_exception_passes_through_nested_steps_and_the_outer_one_can_go_on(dev):
    x = torch.ones(2, device=dev)
    with torch_spool.step():
        with pytest.raises(KeyError):
            with torch_spool.step():
                x.add_(1)
                raise KeyError("inner")
        x.mul_(10)
    same(x, torch.full((2,), 20.0))


def test_sync_inside_a_step_cuts_it_in_two(dev):
    x = torch.ones(2, device=dev)
    torch_spool.sync(wait=True)
    metrics.clear_all()
    with torch_spool.step():
        a = x + 1
        torch_spool.sync()
        assert _C.tape_length() == 0
        b = a + 1
    assert executions() == 2
    same(b, torch.full((2,), 3.0))


def test_item_inside_a_step_launches_what_is_recorded_once_and_counts_a_graph_break(dev):
    x = torch.arange(4.0).to(dev)
    torch_spool.sync(wait=True)
    metrics.clear_all()
    with torch_spool.step():
        total = x.sum()
        assert total.item() == 6.0
        assert _C.tape_length() == 0
        assert total.item() == 6.0, "already computed: nothing is launched again"
        y = x / total
    assert executions() == 2
    assert count("GraphBreak") == 1
    same(y, torch.arange(4.0) / 6)


def test_a_read_outside_any_region_is_no_graph_break(dev):
    assert (torch.ones(2, device=dev) + 1).sum().item() == 4.0
    assert count("GraphBreak") == 0


def test_a_step_is_also_a_decorator(dev):
    weight = torch.ones(2, device=dev)

    @torch_spool.step()
    def update(rate: float) -> torch.Tensor:
        """Take it away."""
        weight.sub_(rate)
        return weight

    torch_spool.sync(wait=True)
    metrics.clear_all()
    assert update(0.25) is weight
    update(0.5)
    assert executions() == 2
    assert update.__name__ == "update" and update.__doc__ == "Take it away."
    same(weight, torch.full((2,), 0.25))


@pytest.mark.serial
def test_leaving_a_step_does_not_wait(dev):
    a = torch.rand(700, 700).to(dev)
    torch_spool.sync(wait=True)
    metrics.clear_all()
    with torch_spool.step():
        for _ in range(40):
            a = (a @ a) * 1e-3
    unfinished = metrics.metric_data("ExecuteTime") is None
    torch_spool.wait_device_ops()
    assert unfinished
    assert metrics.metric_data("ExecuteTime")[0] == 1

"""`sync`, `synchronize`, `_barrier`, reads, and what `reset_scope` does."""

import pytest
import torch

import torch_spool
from helpers import executions, run_program, same
from torch_spool import _C
from torch_spool.debug import metrics, profiler


def pending(dev):
    x = torch.arange(6.0).to(dev)
    torch_spool.sync(wait=True)
    metrics.clear_all()
    return x, x * 2


def test_sync_launches_all_that_is_pending_as_one_graph(dev):
    x, y = pending(dev)
    z = y + x
    torch_spool.sync()
    assert _C.tape_length() == 0
    assert executions() == 1
    same(z, torch.arange(6.0) * 3)
    assert executions() == 1, "nothing is computed twice"


def test_sync_with_wait_returns_when_the_results_are_there(dev):
    _, y = pending(dev)
    torch_spool.sync(wait=True)
    assert metrics.metric_data("ExecuteTime")[0] == 1
    same(y, torch.arange(6.0) * 2)


def test_sync_with_nothing_pending_launches_nothing(dev):
    pending(dev)
    torch_spool.sync(wait=True)
    before = executions()
    torch_spool.sync(wait=True)
    assert executions() == before


def test_synchronize_waits_and_launches_nothing(dev):
    x, y = pending(dev)
    torch_spool.sync()
    z = y + x
    recorded = _C.tape_length()
    torch_spool.synchronize()
    assert metrics.metric_data("ExecuteTime")[0] == 1, "what was launched is done"
    assert _C.tape_length() == recorded > 0, "what was recorded is still pending"
    same(z, torch.arange(6.0) * 3)


def test_synchronize_says_once_until_the_next_sync_that_operations_are_pending():
    done = run_program(
        "import torch, torch_spool\n"
        "for _ in range(2):\n"
        "    x = torch.ones(2, device='xla') + 1\n"
        "    torch_spool.synchronize()\n"
        "    torch_spool.synchronize()\n"
        "    torch_spool.sync()\n"
    )
    said = [line for line in done.stderr.splitlines() if line.startswith("[synchronize]")]
    assert len(said) == 2, done.stderr
    assert "pending" in said[0] and "sync(wait=True)" in said[0]


@pytest.mark.parametrize("region", [torch_spool.step, torch_spool.compile], ids=["step", "compile"])
def test_synchronize_in_a_region_waits_and_does_not_cut(dev, region):
    x, y = pending(dev)
    torch_spool.sync()
    with region():
        z = y + x
        recorded = _C.tape_length()
        torch_spool.synchronize()
        assert metrics.metric_data("ExecuteTime")[0] == 1
        assert _C.tape_length() == recorded > 0
    assert executions() == 2
    same(z, torch.arange(6.0) * 3)


def test_synchronize_inside_a_full_graph_region_is_an_error_and_the_region_ends_well(dev):
    x = torch.ones(3, device=dev)
    with pytest.raises(RuntimeError, match=r"^\[synchronize\]"):
        with torch_spool.compile(full_graph=True):
            x.add_(1)
            torch_spool.synchronize()
    same(x, torch.full((3,), 2.0))
    with torch_spool.compile(full_graph=True):
        x.add_(1)
    torch_spool.synchronize()
    same(x, torch.full((3,), 3.0))


@pytest.mark.parametrize("device", [None, 0, "xla", "xla:0", torch.device("xla")])
def test_synchronize_takes_the_device_as_torch_cuda_synchronize_does(device):
    torch_spool.synchronize(device)


@pytest.mark.parametrize(
    ("device", "kind"),
    [("cpu", ValueError), (7, ValueError), ("xla:3", ValueError), (1.5, TypeError), (True, TypeError)],
)
def test_synchronize_refuses_what_is_no_lazy_device(device, kind):
    with pytest.raises(kind, match=r"^\[synchronize\] expected .* got "):
        torch_spool.synchronize(device)


def test_barrier_cuts_without_waiting_or_resetting_scopes_and_keeps_closures_queued(dev):
    _, y = pending(dev)
    ran = []
    torch_spool.add_step_closure(ran.append, args=(1,))
    with profiler.Trace("outer"):
        torch_spool._barrier()
        assert _C.current_scope() == "outer"
    assert _C.tape_length() == 0
    assert executions() == 1
    assert ran == []
    torch_spool.sync()
    assert ran == [1]
    same(y, torch.arange(6.0) * 2)


def test_a_read_cuts_and_nothing_is_computed_twice(dev):
    _, y = pending(dev)
    z = y + 1
    assert y.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    same(z, torch.arange(6.0) * 2 + 1)
    assert z.sum().item() == 36.0
    assert executions() == 2


def test_printing_is_one_read(dev):
    _, y = pending(dev)
    text = repr(y)
    assert executions() == 1
    assert text == "tensor([ 0.,  2.,  4.,  6.,  8., 10.], device='xla:0')"


def test_a_tape_that_nobody_cuts_is_cut_by_itself():
    run_program(
        "import torch, torch_spool\n"
        "from torch_spool import _C\n"
        "x = torch.zeros(3, device='xla')\n"
        "torch_spool.sync()\n"
        "for _ in range(500):\n"
        "    x = x + 1\n"
        "    assert _C.tape_length() <= 64, _C.tape_length()\n"
        "assert x.tolist() == [500.0] * 3\n",
        env={"SPOOL_MAX_TAPE_OPS": "64"},
    )


def test_reset_scope_starts_open_scopes_again_at_the_root(dev):
    with profiler.Trace("outer"):
        assert profiler.current_scope() == "outer"
        with profiler.Trace("inner"):
            assert profiler.current_scope() == "outer/inner"
            torch_spool.sync()
            assert profiler.current_scope() == ""
            with profiler.Trace("later"):
                assert profiler.current_scope() == "later"
            assert profiler.current_scope() == ""
    assert profiler.current_scope() == ""
    with profiler.Trace("next"):
        assert profiler.current_scope() == "next"


def test_sync_without_reset_scope_keeps_open_scopes(dev):
    with profiler.Trace("outer"):
        torch_spool.sync(reset_scope=False)
        assert profiler.current_scope() == "outer"


def test_recorded_ops_carry_the_scope_and_after_a_reset_none(dev):
    x = torch.arange(13.0).to(dev)
    far = torch.tensor([50]).to(dev)

    def failure(result: torch.Tensor) -> str:
        with pytest.raises((IndexError, RuntimeError)) as caught:
            result.cpu()
        return str(caught.value)

    with profiler.Trace("block7"):
        inside = failure(x.index_select(0, far))
        torch_spool.sync()
        after_reset = failure(x.view(1, 13).index_select(1, far))
    assert "block7" in inside
    assert "block7" not in after_reset


def test_the_profilers_ranges_stay_open_over_a_reset_and_close_normally(dev):
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        with profiler.Trace("wide"):
            y = torch.ones(2, device=dev) + 1
            torch_spool.sync(wait=True, reset_scope=True)
            with torch.profiler.record_function("inside, after the reset"):
                y = y * 2
        with torch.profiler.record_function("after"):
            pass
    events = {event.name: event.time_range for event in profile.events()}
    wide, inside, after = (events[name] for name in ("wide", "inside, after the reset", "after"))
    assert wide.start <= inside.start and inside.end <= wide.end <= after.start


def test_sync_resets_scopes_by_default_only_on_its_own_thread_of_names(dev):
    @profiler.trace_me("called")
    def scope() -> str:
        return profiler.current_scope()

    assert scope() == "called"
    torch_spool.sync()
    assert scope() == "called"


def test_a_step_trace_cuts_at_its_end_and_passes_exceptions(dev):
    x = torch.ones(2, device=dev)
    with profiler.StepTrace("train", step_num=3):
        x.add_(1)
        assert profiler.current_scope() == "train"
    assert _C.tape_length() == 0
    error = KeyError("no")
    with pytest.raises(KeyError) as caught:
        with profiler.StepTrace("train"):
            x.add_(1)
            raise error
    assert caught.value is error
    assert _C.tape_length() == 0
    same(x, torch.full((2,), 3.0))


def test_eager_mode_launches_each_operation_by_itself(dev):
    x = torch.ones(2, device=dev)
    torch_spool.sync(wait=True)
    metrics.clear_all()
    with torch_spool.eager_mode_context(True):
        assert torch_spool.is_eager_mode()
        y = x + 1
        assert _C.tape_length() == 0
        y = y * 2
        assert _C.tape_length() == 0
    assert not torch_spool.is_eager_mode()
    assert executions() == 2
    same(y, torch.full((2,), 4.0))


def test_devices_are_listed_and_checked():
    assert torch_spool.devices() == [torch.device("xla", i) for i in range(torch_spool.device_count())]
    assert torch_spool.device() == torch.device("xla:0") == torch_spool.device(0)
    with pytest.raises(ValueError, match=r"^\[device\] expected a device index from 0 to"):
        torch_spool.device(torch_spool.device_count())
    assert torch.xla.is_available() and torch.xla.device_count() == torch_spool.device_count()
    assert torch.get_device_module("xla") is torch.xla

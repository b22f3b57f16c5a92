"""`add_step_closure`: when closures run, where, and what becomes of their exceptions."""

import threading

import pytest
import torch

import torch_spool
from helpers import count, executions, run_program, same
from torch_spool.debug import metrics


def test_a_closure_runs_at_the_next_sync_and_once(dev):
    ran = []
    torch_spool.add_step_closure(ran.append, args=("a",))
    assert ran == []
    torch_spool.sync()
    torch_spool.sync()
    assert ran == ["a"]


def test_closures_run_in_order_when_a_step_ends(dev):
    ran = []
    with torch_spool.step():
        for i in range(3):
            torch_spool.add_step_closure(ran.append, args=(i,))
        assert ran == []
    assert ran == [0, 1, 2]


def test_a_closure_reads_a_result_without_breaking_the_steps_graph(dev):
    read = []
    x = torch.arange(4.0).to(dev)
    torch_spool.sync(wait=True)
    metrics.clear_all()
    with torch_spool.step():
        loss = x.sum()
        torch_spool.add_step_closure(lambda t: read.append(t.item()), args=(loss,))
        del loss  # the closure's arguments live until it has run
        y = x * 2
    assert read == [6.0]
    assert count("GraphBreak") == 0
    assert executions() == 1
    same(y, torch.arange(4.0) * 2)


def test_neither_a_read_nor_a_barrier_runs_closures(dev):
    ran = []
    torch_spool.add_step_closure(ran.append, args=(1,))
    assert (torch.ones(2, device=dev) + 1).sum().item() == 4
    torch_spool._barrier()
    assert ran == []
    torch_spool.sync()
    assert ran == [1]


def test_an_async_closure_runs_on_another_thread_and_in_order(dev):
    ran, done = [], threading.Event()

    def note(t: torch.Tensor) -> None:
        ran.append((t.item(), threading.get_ident()))
        if len(ran) == 3:
            done.set()

    for i in range(3):
        with torch_spool.step():
            torch_spool.add_step_closure(
                note, args=(torch.full((), float(i), device=dev) + 1,), run_async=True
            )
    assert done.wait(30)
    assert [value for value, _ in ran] == [1.0, 2.0, 3.0]
    assert {thread for _, thread in ran} != {threading.get_ident()}
    torch_spool.sync()


NEXT_CALLS = {
    "sync": torch_spool.sync,
    "step": torch_spool.step()(lambda: None),
    "add_step_closure": lambda: torch_spool.add_step_closure(print),
}


@pytest.mark.parametrize("name", NEXT_CALLS)
def test_an_async_closures_exception_is_raised_by_the_next_call(dev, name):
    left = threading.Event()
    error = KeyError("from the closure")

    def fail() -> None:
        try:
            raise error
        finally:
            left.set()

    torch_spool.add_step_closure(fail, run_async=True)
    torch_spool.sync()
    assert left.wait(30)
    for _ in range(500):  # the closure has raised; its thread needs a moment to note it
        threading.Event().wait(0.002)
    with pytest.raises(KeyError) as caught:
        NEXT_CALLS[name]()
    assert caught.value is error
    torch_spool.sync()  # once: the next call is fine


def test_a_closures_exception_is_raised_by_the_call_that_runs_it(dev):
    x = torch.ones(2, device=dev)

    def fail() -> None:
        raise KeyError("from the closure")

    torch_spool.add_step_closure(fail)
    x.add_(1)
    with pytest.raises(KeyError, match="from the closure"):
        torch_spool.sync()
    same(x, torch.full((2,), 2.0))
    torch_spool.sync()


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match=r"^\[add_step_closure\] expected a function"):
        torch_spool.add_step_closure(3)


def test_an_async_closure_that_is_running_when_the_process_ends_runs_to_its_end():
    done = run_program(
        "import time, torch, torch_spool\n"
        "def late(t):\n"
        "    time.sleep(0.3)\n"
        "    print('closure', t.item())\n"
        "with torch_spool.step():\n"
        "    total = torch.ones(4, device='xla').sum()\n"
        "    torch_spool.add_step_closure(late, args=(total,), run_async=True)\n"
        "print('end', flush=True)\n"
    )
    assert done.stdout == "end\nclosure 4.0\n"
    assert done.stderr == ""


def test_an_async_closures_exception_that_no_call_has_raised_is_shown_when_the_process_ends():
    done = run_program(
        "import torch_spool\n"
        "def fail():\n"
        "    raise KeyError('from the closure')\n"
        "torch_spool.add_step_closure(fail, run_async=True)\n"
        "torch_spool.sync()\n"
    )
    assert "KeyError: 'from the closure'" in done.stderr

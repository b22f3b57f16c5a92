"""Two thousand steps leave nothing behind."""

import gc

import psutil
import pytest
import torch

import torch_spool
from helpers import REPOSITORY, run_python, same
from torch_spool import _C
from torch_spool.core import xla_model as xm


@pytest.mark.serial
def test_two_thousand_steps_hold_slots_cache_and_memory_flat(dev):
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to(dev)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(8, 16).to(dev), torch.randint(4, (8,)).to(dev)

    def run(steps: int) -> None:
        for i in range(steps):
            with torch_spool.step():
                optimiser.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x), y) * (1 + i % 7)
                loss.backward()
                optimiser.step()
            if i % 50 == 0:
                loss.item()

    def held() -> tuple[int, int, int]:
        gc.collect()
        torch_spool.sync(wait=True)
        return _C.live_slots(), _C.cache_size(), xm.get_memory_info()["bytes_used"]

    run(200)
    before, resident = held(), psutil.Process().memory_info().rss
    run(2000)
    assert held() == before
    assert psutil.Process().memory_info().rss - resident < 16 << 20


@pytest.mark.serial
def test_a_small_transformer_trains_in_flat_memory_from_one_compiled_step():
    # The short form of `./dev bench steady --net transformer`, whose full run takes 10 000 steps.
    short = ("--net", "transformer", "--steps", "240", "--every", "10", "--strict")
    done = run_python(str(REPOSITORY / "bench" / "steady.py"), *short, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" met") == 4


def test_a_tensor_that_is_let_go_frees_its_slot_pending_or_not(dev):
    gc.collect()
    torch_spool.sync(wait=True)
    before = _C.live_slots()
    a = torch.ones(4, device=dev) + 1
    b = a[1:]
    assert _C.live_slots() > before
    torch_spool.sync(wait=True)
    del a
    assert _C.live_slots() > before, "the view holds it"
    del b
    c = torch.ones(4, device=dev).exp()
    del c
    torch_spool.sync(wait=True)
    assert _C.live_slots() == before


def test_an_input_lives_until_its_plan_has_run_though_the_program_let_go_of_it(dev):
    results = []
    for i in range(20):
        x = torch.full((200, 200), float(i)).to(dev)
        results.append((x @ x).sum())
        del x
        torch_spool.sync()
    for i, total in enumerate(results):
        same(total, (torch.full((200, 200), float(i)) @ torch.full((200, 200), float(i))).sum())


def test_results_that_nobody_holds_are_not_kept(dev):
    gc.collect()
    torch_spool.sync(wait=True)
    before = xm.get_memory_info()["bytes_used"]
    for _ in range(30):
        torch.rand(64, 1024, device=dev).mul_(2)
        torch_spool.sync()
    torch_spool.sync(wait=True)
    assert xm.get_memory_info()["bytes_used"] <= before + (1 << 20)

"""The recorder and the compile cache: what compiles again and what does not."""

import pytest
import torch

import torch_spool
from helpers import as_eager, compiles, count, same
from torch_spool import _C
from torch_spool.debug import metrics


def test_a_learning_rate_that_takes_fifty_values_compiles_once(dev):
    def program(device):
        torch.manual_seed(0)
        model = torch.nn.Linear(6, 3).to(device)
        optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
        rates = [0.0, 1.0, *(0.9**i for i in range(1, 49))]
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda i: rates[min(i, 49)])
        counts = []
        x = torch.ones(4, 6).to(device)
        if device.type == "xla":
            torch_spool.sync(wait=True)
            metrics.clear_all()
        for _ in range(50):
            with torch_spool.step():
                optimiser.zero_grad()
                (model(x) ** 2).mean().backward()
                optimiser.step()
            schedule.step()
            counts.append(compiles())
        return model, counts

    got, counts = program(dev)
    want, _ = program(torch.device("cpu"))
    assert counts[-1] == counts[0] == 1
    for g, w in zip(got.parameters(), want.parameters()):
        same(g, w)


@pytest.mark.parametrize(
    "kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RMSprop]
)
def test_an_optimisers_step_count_compiles_nothing(dev, kind):
    model = torch.nn.Linear(5, 2).to(dev)
    optimiser = kind(model.parameters(), lr=0.01)
    counts = []
    for _ in range(8):
        with torch_spool.step():
            optimiser.zero_grad()
            model(torch.ones(3, 5, device=dev)).square().mean().backward()
            optimiser.step()
        counts.append(compiles())
    assert counts[-1] == counts[1]


def test_what_equals_the_tape_before_is_followed_and_a_difference_falls_back(dev):
    x = torch.ones(5, device=dev)
    torch_spool.sync()

    def once(extra: bool) -> torch.Tensor:
        y = x
        for _ in range(20):
            y = y * 2 - 1
            y = y / 2
        if extra:
            y = y.exp()
        y = y + 0.5
        torch_spool.sync()
        return y

    once(False)
    before = _C.recorder_stats()
    plain = once(False)
    after = _C.recorder_stats()
    recorded = after["ops"] - before["ops"]
    assert recorded >= 61
    assert after["followed"] - before["followed"] >= recorded - 2
    differing = once(True)
    want = torch.ones(5)
    for _ in range(20):
        want = (want * 2 - 1) / 2
    same(plain, want + 0.5)
    same(differing, want.exp() + 0.5)


def test_not_following_gives_the_same_and_is_counted(dev):
    def once() -> torch.Tensor:
        y = torch.full((4,), 3.0, device=dev).sin()
        torch_spool.sync()
        return y

    followed = once()
    _C.set_follow(False)
    try:
        before = _C.recorder_stats()
        unfollowed = once()
        after = _C.recorder_stats()
    finally:
        _C.set_follow(True)
    assert after["ops"] > before["ops"]
    assert after["followed"] == before["followed"]
    same(followed, unfollowed.cpu())


def test_the_cache_keeps_no_more_plans_than_its_capacity_and_evicted_ones_compile_again(dev):
    _C.set_cache_capacity(4)
    for n in range(1, 12):
        same(torch.ones(n, 3, 29, device=dev).cumsum(0), torch.ones(n, 3, 29).cumsum(0))
        assert _C.cache_size() <= 4
    before = compiles()
    same(torch.ones(1, 3, 29, device=dev).cumsum(0), torch.ones(1, 3, 29).cumsum(0))
    assert compiles() > before, "the first was evicted: the last ones are kept"
    before = compiles()
    same(torch.ones(1, 3, 29, device=dev).cumsum(0), torch.ones(1, 3, 29).cumsum(0))
    assert compiles() == before


def test_which_results_are_alive_is_part_of_the_key(dev):
    x = torch.arange(7.0).to(dev)
    want = torch.arange(7.0)
    for keep in (True, False, True, False):
        y = x + 1
        z = y * 3
        if not keep:
            del y
        torch_spool.sync()
        same(z, (want + 1) * 3)
        if keep:
            same(y, want + 1)


def test_wiring_is_part_of_the_key(dev):
    a, b = torch.arange(3.0).to(dev), (torch.arange(3.0) * 10).to(dev)
    for left, right in ((a, b), (b, a), (a, a)):
        got = left * 2 - right
        torch_spool.sync()
        same(got, left.cpu() * 2 - right.cpu())


NUMBERS = {
    "int or float": [lambda x: x + 2, lambda x: x + 2.5, lambda x: x + 3, lambda x: x + True],
    "pow": [lambda x: x**2, lambda x: x**3, lambda x: x**0.5, lambda x: x**0],
    "clamp": [
        lambda x: x.clamp(1, 3),
        lambda x: x.clamp(max=2),
        lambda x: x.clamp(min=2),
        lambda x: x.clamp(0, 2),
    ],
    "alpha": [lambda x: x.add(x, alpha=2), lambda x: x.add(x, alpha=-3), lambda x: x.sub(1, alpha=4)],
    "shape": [
        lambda x: torch.arange(3, device=x.device) + x[0],
        lambda x: torch.arange(4, device=x.device) + x[0],
    ],
    "bounds": [
        lambda x: torch.linspace(0, 1, 3, device=x.device) + x[0],
        lambda x: torch.linspace(0, 2, 4, device=x.device),
    ],
    "range": [
        lambda x: torch.arange(0, 6, 2, device=x.device),
        lambda x: torch.arange(1, 7, 2, device=x.device),
    ],
    "special": [
        lambda x: x * float("inf"),
        lambda x: x * float("nan"),
        lambda x: x * -0.0,
        lambda x: x * 1e300,
    ],
    "fill": [
        lambda x: torch.full((3,), 7, device=x.device),
        lambda x: torch.full((3,), 7.5, device=x.device),
    ],
    "complex": [lambda x: x * 2j, lambda x: x * (1 + 0.5j)],
    "compare": [lambda x: x > 1, lambda x: x > 2, lambda x: x == 2.5, lambda x: torch.where(x > 1, x, 9)],
    "large": [
        lambda x: x + 2**40,
        lambda x: x * (2**31 + 1),
        lambda x: x // 3,
        lambda x: x % 3,
        lambda x: x % -3,
    ],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_changes_gives_eagers_value_and_dtype(dev, name, dtype):
    def program(device):
        x = torch.arange(5, dtype=dtype).to(device)
        out = []
        for f in NUMBERS[name] * 2:
            out.append(f(x))
            if device.type == "xla":
                torch_spool.sync()
        return out

    as_eager(program, dev)


def test_a_zero_dimensional_cpu_tensor_is_a_number_of_the_plan(dev):
    x = torch.arange(4.0, device=dev)
    torch_spool.sync(wait=True)
    metrics.clear_all()
    for value in (1.0, 2.5, -3.0):
        y = x * torch.tensor(value)
        torch_spool.sync()
        same(y, torch.arange(4.0) * value)
    assert compiles() <= 1
    assert count("UncachedCompile") <= 1


def test_a_plan_is_found_again_by_other_tensors_of_the_same_geometry(dev):
    def once(seed: float) -> torch.Tensor:
        x = torch.full((3, 31), seed, device=dev)
        return (x.sin() + x.cos()).cpu()

    once(0.5)
    before = compiles()
    same(once(0.25), torch.full((3, 31), 0.25).sin() + torch.full((3, 31), 0.25).cos())
    assert compiles() == before


def test_the_recorders_time_is_measured_when_asked_for(dev):
    _C.set_recorder_timing(True)
    try:
        before = _C.recorder_stats()["recorder_ns"]
        y = torch.ones(3, device=dev) + 1
        assert _C.recorder_stats()["recorder_ns"] > before
    finally:
        _C.set_recorder_timing(False)
    same(y, torch.full((3,), 2.0))

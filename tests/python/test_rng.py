"""Random numbers: the same as eager's from the same seed, in program order."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import torch_spool
from helpers import as_eager, same, same_all
from torch_spool.core import xla_model as xm

DRAWS = {
    "rand": lambda d: torch.rand(7, device=d),
    "randn": lambda d: torch.randn(33, device=d),
    "rand_like": lambda d: torch.rand_like(torch.zeros(4, device=d)),
    "uniform_": lambda d: torch.zeros(9, device=d).uniform_(-1, 2),
    "normal_": lambda d: torch.zeros(20, device=d).normal_(1, 3),
    "bernoulli": lambda d: torch.full((60,), 0.3, device=d).bernoulli(),
    "bernoulli_": lambda d: torch.zeros(60, device=d).bernoulli_(0.7),
    "randint": lambda d: torch.randint(1000, (30,), device=d),
    "random_": lambda d: torch.zeros(8, dtype=torch.int64, device=d).random_(0, 50),
    "randperm": lambda d: torch.randperm(50, device=d),
    "multinomial": lambda d: torch.ones(12, device=d).multinomial(5),
    "exponential_": lambda d: torch.zeros(6, device=d).exponential_(),
    "dropout": lambda d: torch.nn.functional.dropout(torch.ones(200, device=d), 0.4),
    "linear": lambda d: torch.nn.Linear(5, 3, device=d).weight.detach(),
    "xavier": lambda d: torch.nn.init.xavier_normal_(torch.empty(4, 6, device=d)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_the_same_seed_gives_eagers_numbers(dev, name):
    def program(device):
        draws = [DRAWS[name](device) for _ in range(2)]
        return [*draws, DRAWS["rand"](device)]

    as_eager(program, dev)


@pytest.mark.parametrize("cut", [False, True])
def test_draws_on_both_devices_and_seeding_are_in_program_order(dev, cut):
    def program(device):
        out = [torch.rand(3, device=device)]
        out.append(torch.rand(2).to(device))
        out.append(torch.randn(4, device=device))
        torch.manual_seed(11)
        out.append(torch.rand(5, device=device))
        if cut:
            torch_spool.sync()
        out.append(torch.randint(9, (5,)).to(device))
        torch_spool.manual_seed(12)
        out.append(torch.rand(5, device=device))
        return out

    as_eager(program, dev)


def test_one_seed_again_gives_the_numbers_again_and_another_does_not(dev):
    def draw(seed):
        torch.manual_seed(seed)
        return [draw_one(dev).cpu() for draw_one in DRAWS.values()]

    first = draw(5)
    same_all(draw(5), first)
    assert not torch.equal(draw(6)[0], first[0])


def test_state_is_saved_and_restored_in_order_with_pending_ops(dev):
    state = torch_spool.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu" and state.dim() == 1
    a = torch.rand(6, device=dev)
    torch_spool.set_rng_state(state)
    b = torch.rand(6, device=dev)
    c = torch.rand(6, device=dev)
    same(b, a.cpu())
    assert not torch.equal(c.cpu(), a.cpu())
    state = xm.get_rng_state()
    d = torch.rand(6, device=dev)
    xm.set_rng_state(state)
    same(torch.rand(6, device=dev), d.cpu())
    xm.set_rng_state(3)
    e = torch.rand(6, device=dev)
    torch.manual_seed(3)
    same(e, torch.rand(6))


def test_a_state_that_is_none_is_refused():
    for state in (3, torch.zeros(4), None):
        with pytest.raises(TypeError, match=r"^\[set_rng_state\] expected"):
            torch_spool.set_rng_state(state)


def test_fork_rng_keeps_the_numbers_outside_as_they_were(dev):
    def program(device):
        with torch.random.fork_rng(devices=[0] if device.type == "xla" else [], device_type="xla"):
            torch.manual_seed(99)
            inside = torch.rand(3, device=device)
        return [inside, torch.rand(3, device=device)]

    as_eager(program, dev)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_dropout_draws_the_same_numbers_again(dev, reentrant):
    def program(device):
        x = torch.rand(30, device=device).requires_grad_()
        net = torch.nn.Sequential(torch.nn.Linear(30, 30), torch.nn.Dropout(0.5)).to(device)
        y = checkpoint(net, x, use_reentrant=reentrant)
        (y * y).sum().backward()
        return [y, x.grad, net[0].weight.grad]

    as_eager(program, dev)


def test_random_numbers_do_not_compile_again(dev):
    from helpers import compiles

    counts = []
    for _ in range(4):
        x = torch.nn.functional.dropout(torch.ones(5, 43, device=dev), 0.4) + torch.rand(5, 43, device=dev)
        torch_spool.sync()
        counts.append(compiles())
        del x
    assert counts[-1] == counts[0]

"""Training programs give eager's losses, parameters and statistics to the last bit."""

import contextlib

import pytest
import torch

import programs
import torch_spool
from helpers import as_eager, compiles, same_all
from torch_spool.debug import metrics

pytestmark = pytest.mark.usefixtures("exact")


@pytest.mark.parametrize("cut", ["every step", "no cut"])
@pytest.mark.parametrize("name", programs.ALL)
def test_ten_steps_equal_eager_to_the_last_bit(dev, name, cut):
    def program(device):
        lazy = device.type == "xla" and cut == "every step"
        return programs.ALL[name](device, torch_spool.sync if lazy else lambda: None)

    as_eager(program, dev)


@pytest.mark.parametrize("name", programs.ALL)
def test_a_training_step_runs_nothing_at_once(dev, name):
    programs.ALL[name](dev, torch_spool.sync, steps=2)
    assert metrics.executed_fallback_ops() == []
    assert metrics.counter_value("DispatcherMeta") is None, "all shapes are inferred in C++"


@pytest.mark.parametrize("region", ["step", "compile"])
def test_training_in_a_region_equals_eager_and_compiles_no_more_after_two_steps(dev, region):
    enter = {"step": torch_spool.step, "compile": torch_spool.compile}[region]

    def program(device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(9, 14), torch.nn.SiLU(), torch.nn.Linear(14, 4)).to(
            device
        )
        optimiser = torch.optim.AdamW(model.parameters(), lr=0.02)
        data = [(torch.randn(5, 9), torch.randint(4, (5,))) for _ in range(10)]
        losses, counts = [], []
        for x, y in data:
            with enter() if device.type == "xla" else contextlib.nullcontext():
                optimiser.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
                loss.backward()
                optimiser.step()
            losses.append(loss.item())
            counts.append(compiles())
        return [torch.tensor(losses), *model.parameters()], counts

    got, counts = program(dev)
    want, _ = program(torch.device("cpu"))
    same_all(got, want)
    assert counts[-1] == counts[1]


def test_gradient_accumulation_and_clipping_equal_eager(dev):
    def program(device):
        torch.manual_seed(0)
        model = torch.nn.Linear(6, 4).to(device)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
        norms = []
        for i in range(8):
            model(torch.randn(3, 6).to(device)).pow(2).sum().backward()
            if i % 2:
                norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
                optimiser.step()
                optimiser.zero_grad()
                torch_spool.sync()
        return [*norms, *model.parameters()]

    as_eager(program, dev)


def test_double_backward_equals_eager(dev):
    def program(device):
        x = torch.randn(5).to(device).requires_grad_()
        (grad,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (grad * grad).sum().backward()
        return [grad, x.grad]

    as_eager(program, dev)


def test_autocast_runs_in_bfloat16_as_on_the_cpu(dev):
    def program(device):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            y = net(torch.randn(3, 8).to(device))
        assert y.dtype == torch.bfloat16
        y.float().square().sum().backward()
        return [y, *(p.grad for p in net.parameters())]

    as_eager(program, dev)


def test_lbfgs_with_a_closure_that_reads_the_loss_equals_eager(dev):
    def program(device):
        x = torch.tensor([2.0, -1.5]).to(device).requires_grad_()
        optimiser = torch.optim.LBFGS([x], lr=0.5, max_iter=4)

        def closure():
            optimiser.zero_grad()
            loss = (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2
            loss.backward()
            return loss

        for _ in range(3):
            optimiser.step(closure)
        return [x]

    as_eager(program, dev)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "Adagrad"])
def test_fused_optimisers_are_one_op_and_equal_eager(dev, name):
    def program(device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 2)).to(device)
        optimiser = getattr(torch.optim, name)(model.parameters(), lr=0.05, fused=True)
        for _ in range(6):
            optimiser.zero_grad()
            model(torch.randn(3, 5).to(device)).square().sum().backward()
            optimiser.step()
            torch_spool.sync()
        return list(model.parameters())

    as_eager(program, dev)
    assert metrics.executed_fallback_ops() == []

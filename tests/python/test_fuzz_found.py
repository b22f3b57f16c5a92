"""What random programs (test_fuzz_views.py) found, each as a small program of its own."""

import pytest
import torch

from fuzz_programs import difference, run

PROGRAMS = {
    "a copy to another dtype keeps strides": [
        "a = torch.arange(6, device=d).view(2, 3)",
        "b = a.t().to(torch.float64)",
        "c = a.t().to(torch.float64).t().view(6)",
    ],
    "a copy of a tensor with gaps keeps the order of its dimensions": [
        "a = torch.zeros(4, 6, device=d)[:, ::2].t()",
        "b = a.clone()",
        "c = torch.zeros_like(a)",
        "e = a.to(torch.int32)",
        "f = a.detach().clone().cpu().to(d)",
    ],
    "a copy to a part of itself is refused at the call": [
        "a = torch.arange(4, device=d)",
        "a[1:].copy_(a[:-1])",
        "a.copy_(a[1])",
        "b = a.expand(2, 4)",
        "b.copy_(a)",
    ],
    "an overlap is refused where the same op was known without one": [
        "a = torch.arange(4, device=d)",
        "b = torch.arange(4, device=d)",
        "a[1:].add_(b[:-1])",
        "sync()",
        "a[1:].add_(a[:-1])",
    ],
    "a number of itself fills a tensor": [
        "a = torch.arange(4, device=d)",
        "a[:] = a[2]",
        "b = torch.arange(6, device=d).view(2, 3)",
        "b[:, 1:] = b[1, 2]",
    ],
    "a write to a list counts as a write to its tensors": [
        "a = torch.ones(2, device=d)",
        "torch._foreach_add_([a], 1)",
        "b = torch.ones(2, device=d, requires_grad=True)",
        "c = b.exp()",
        "torch._foreach_mul_([c.detach()], 2)",
        "c.sum().backward()",
    ],
    "set_ to nothing keeps the strides of a tensor of nothing": [
        "a = torch.zeros(1, device=d).as_strided((0,), (0,), 0).clone()",
        "a.set_()",
    ],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_differed_gives_eagers_values(name: str, dev: torch.device) -> None:
    lines = PROGRAMS[name]
    assert difference(run(lines, dev), run(lines, torch.device("cpu"))) is None

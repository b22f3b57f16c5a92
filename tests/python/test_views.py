"""Views and writes through them: sizes, strides and values are eager's, wherever the program is cut."""

import pytest
import torch

import torch_spool
from helpers import same, same_all


def base_and_views(d, cut):
    base = torch.zeros(3, 4, device=d)
    flat, row, column = base.view(12), base[1], base[:, 2]
    cut()
    flat[5] = 7.0
    row.add_(2.0)
    cut()
    column.mul_(3.0)
    base[0] = -1.0
    return base, flat, row, column


def overlapping(d, cut):
    x = torch.arange(10.0, device=d)
    windows = x.unfold(0, 4, 2)
    cut()
    x.mul_(2)
    total = windows.sum(1)
    cut()
    x[3:5] += 1
    return x, windows, total


def transposed_write(d, cut):
    x = torch.arange(12.0, device=d).view(3, 4)
    t = x.t()
    t[1].copy_(torch.tensor([100.0, 200.0, 300.0], device=d))
    cut()
    t[2:, 1:] *= -1
    return x, t, t.contiguous(), x.permute(1, 0)[::2]


def expanded_read(d, cut):
    x = torch.arange(3.0, device=d)
    wide = x.expand(4, 3)
    cut()
    x[1] = 10
    return wide, wide.sum(0), wide.t().reshape(12)


def strided(d, cut):
    y = torch.arange(9.0, device=d) * 2
    part = y[2:]
    out = [part.as_strided((2, 3), (1, 1)), part[1:].as_strided((3,), (2,)), y[5:].as_strided((4,), (1,), 0)]
    cut()
    out[2].zero_()
    cut()
    y.as_strided((3,), (3,), 1).add_(5)
    return [y, part, *out]


def chunks_written(d, cut):
    x = torch.zeros(6, 2, device=d)
    for i, part in enumerate(x.chunk(3)):
        part.fill_(i)
        cut()
        part[0] += 0.5
    a, b = x.split([2, 4])
    a.copy_(b[:2])
    return x, a, b


def diagonal_and_select(d, cut):
    x = torch.zeros(4, 4, device=d)
    x.diagonal().add_(1)
    x.select(1, 3).sub_(torch.arange(4.0, device=d))
    cut()
    x.diagonal(1).mul_(3)
    x.narrow(0, 1, 2).narrow(1, 1, 2).fill_(9)
    return x, x.diagonal(), x.triu()


def detached_shares(d, cut):
    x = torch.ones(3, device=d, requires_grad=True)
    y = x * 2
    z = y.detach()
    cut()
    z.add_(1)
    with torch.no_grad():
        x.data.mul_(3)
    return x.detach(), z, x.data


def out_and_resize(d, cut):
    out = torch.empty(0, device=d)
    torch.add(torch.ones(2, 3, device=d), 1, out=out)
    cut()
    other = torch.empty(6, device=d)
    torch.mul(out.view(6), 2, out=other)
    return out, other, torch.arange(4, out=torch.empty(0, dtype=torch.int64, device=d))


def index_writes(d, cut):
    x = torch.zeros(4, 5, device=d)
    where = torch.tensor([3, 0, 3], device=d)
    x[where, 1] = 2.0
    x.index_put_((where, where), torch.ones(3, device=d), accumulate=True)
    cut()
    x[x > 1.5] = -1
    x.scatter_(1, torch.tensor([[2], [3]], device=d), 8.0)
    x[..., -1].index_fill_(0, torch.tensor([1], device=d), 4.0)
    return x, x[where], x.gather(1, torch.tensor([[4, 0]], device=d))


def complex_parts(d, cut):
    z = torch.zeros(3, dtype=torch.complex64, device=d)
    z.real.add_(torch.arange(3.0, device=d))
    cut()
    torch.view_as_real(z)[:, 1] = 2
    return z, z.imag, z.conj() * z


def swapped_dtype(d, cut):
    x = torch.arange(4, dtype=torch.int32, device=d)
    y = x.view(torch.float32)
    cut()
    x.add_(1)
    return x, y.view(torch.int32), x.view(torch.int8).view(4, 4)


def channels_last(d, cut):
    x = torch.arange(48.0, device=d).view(2, 3, 2, 4).to(memory_format=torch.channels_last)
    y = x * 2
    cut()
    y[:, 1].add_(1)
    assert y.is_contiguous(memory_format=torch.channels_last)
    return x, y, y.flatten(), torch.nn.functional.max_pool2d(y, 2)


PROGRAMS = [
    base_and_views, overlapping, transposed_write, expanded_read, strided, chunks_written, diagonal_and_select,
    detached_shares, out_and_resize, index_writes, complex_parts, swapped_dtype, channels_last,
]  # fmt: skip

CUTS = {"uncut": lambda: None, "sync": torch_spool.sync, "wait": lambda: torch_spool.sync(wait=True)}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_program_on_views_gives_eagers_values_and_geometry(dev, program, cut):
    got = program(dev, CUTS[cut])
    want = program(torch.device("cpu"), lambda: None)
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.stride(), g.storage_offset()) == (w.shape, w.stride(), w.storage_offset())
    same_all([g.resolve_conj() for g in got], [w.resolve_conj() for w in want])


def test_views_of_one_storage_alias_and_others_do_not(dev):
    x = torch.zeros(4, device=dev)
    view, copy = x[1:3], x[1:3].clone()
    assert (
        view.untyped_storage().data_ptr()
        == x.untyped_storage().data_ptr()
        != copy.untyped_storage().data_ptr()
    )
    assert view._is_view() and not copy._is_view()
    x.fill_(5)
    same(view, torch.full((2,), 5.0))
    same(copy, torch.zeros(2))


def test_a_view_keeps_its_base_alive_when_the_base_is_let_go(dev):
    x = torch.arange(6.0, device=dev) + 1
    view = x[4:]
    del x
    torch_spool.sync()
    view.add_(1)
    same(view, torch.tensor([6.0, 7.0]))


def test_a_write_to_a_tensor_that_backward_needs_is_eagers_error(dev):
    x = torch.ones(3, device=dev, requires_grad=True)
    y = x.exp()
    loss = (y * y).sum()
    y.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()

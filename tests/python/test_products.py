"""Matrix products: the native engine calls BLAS itself, and gives the bits that eager gives."""

import itertools
import random

import pytest
import torch

import torch_spool

SIZES = [(m, k, n) for m, k, n in itertools.product([1, 2, 17, 64], repeat=3)]


def matrix(rows: int, columns: int, layout: str, dtype: torch.dtype) -> torch.Tensor:
    """A random matrix: by rows, by columns, with gaps between rows, or with no dimension of stride 1."""
    if layout == "rows":
        return torch.randn(rows, columns, dtype=dtype)
    if layout == "columns":
        return torch.randn(columns, rows, dtype=dtype).t()
    if layout == "gaps":
        return torch.randn(rows, columns + 3, dtype=dtype)[:, 1 : columns + 1]
    return torch.randn(rows, 2 * columns, dtype=dtype)[:, ::2]


def to_device(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor on the lazy device, strides and offset included."""
    base = tensor if tensor._base is None else tensor._base
    return base.to(torch_spool.device()).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("left", ["rows", "columns", "gaps", "sparse"])
@pytest.mark.parametrize("right", ["rows", "columns", "gaps", "sparse"])
def test_products_of_all_layouts_are_bit_equal_to_eager(dtype, left, right):
    torch.manual_seed(0)
    choose = random.Random(0)
    for m, k, n in SIZES:
        a, b = matrix(m, k, left, dtype), matrix(k, n, right, dtype)
        bias = choose.choice([torch.randn(n), torch.randn(m, n), torch.randn(1, n), torch.randn(m, 1)]).to(
            dtype
        )
        beta, alpha = choose.choice([(1, 1), (0, 1), (0.5, 2.0), (1, 0)])
        x, y, z = to_device(a), to_device(b), to_device(bias)
        assert torch.equal((x @ y).cpu(), a @ b), (m, k, n)
        expected = torch.addmm(bias, a, b, beta=beta, alpha=alpha)
        assert torch.equal(torch.addmm(z, x, y, beta=beta, alpha=alpha).cpu(), expected), (
            m,
            k,
            n,
            beta,
            alpha,
        )


def test_a_bias_that_is_not_a_number_is_ignored_if_its_factor_is_zero():
    bias = torch.full((3,), float("nan"), device=torch_spool.device())
    a = torch.ones(2, 4, device=torch_spool.device())
    b = torch.ones(4, 3, device=torch_spool.device())
    assert torch.equal(torch.addmm(bias, a, b, beta=0).cpu(), torch.full((2, 3), 4.0))


def test_products_may_be_less_precise_where_eager_may():
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        expected = a @ b
        actual = (to_device(a) @ to_device(b)).cpu()
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(actual, expected)

"""Where the lazy device does not do what eager does on the CPU, op by op, with the reason. The only such list.

A difference that is not listed in EXCEPTIONS fails tests/python/test_ops.py, and so does a listed one that is none any more. What is
compared is said in op_checks.py (ASPECTS).
"""

from typing import NamedTuple

import torch

Dtypes = tuple[torch.dtype, ...]
ALL: Dtypes = ()  # all dtypes in which the op has the aspect
BF16, F16, F32, F64, C64 = torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.complex64
INTEGERS: Dtypes = (torch.int64, torch.int32, torch.uint8)


class Difference(NamedTuple):
    op: str  # its name in PyTorch's database, with ".variant" where it has variants
    dtypes: Dtypes
    aspect: str
    reason: str


def _rows(reason: str, *rows: tuple[str, Dtypes, str]) -> list[Difference]:
    """Differences for one reason: (ops, dtypes, aspects), where names stand apart by spaces."""
    return [
        Difference(op, dtypes, aspect, reason)
        for ops, dtypes, aspects in rows
        for op in ops.split()
        for aspect in aspects.split()
    ]


# Another kernel runs than in eager, or the same one on operands that were prepared differently: compared within the tolerances of
# torch.testing.assert_close instead of bit for bit. Op: (dtypes, reason).
_CONJUGATES = "eager's BLAS conjugates while it multiplies, the device resolves conjugate views first"
WITHIN_TOLERANCE: dict[str, tuple[Dtypes, str]] = {
    "addmm.decomposed": ((C64,), _CONJUGATES),
    "lu": ((C64,), _CONJUGATES),
    "lu_solve": ((C64,), _CONJUGATES),
    "ormqr": ((C64,), _CONJUGATES),
    # LAPACK's last bits depend on where its operands lie in memory, for one tensor from run to run, too.
    "linalg.": (ALL, "LAPACK"),
}

EXCEPTIONS: list[Difference] = [
    *_rows(
        "the result is sparse: the device has strided tensors only, and says so",
        ("to_sparse", ALL, "forward method noncontiguous empty grad"),
    ),
    *_rows(
        "what is wrong are values on the device: they are known when the graph runs, and the error comes when a result is read",
        ("gather scatter scatter_add masked_fill", ALL, "error"),
    ),
    *_rows(
        "the same is refused as IndexError, which names the range, by the composition that devices other than the CPU have",
        ("narrow_copy", ALL, "error"),
    ),
    *_rows(
        "the bounds of a result that nobody reads are not looked at: the graph drops it",
        ("as_strided_scatter", ALL, "error"),
    ),
    *_rows(
        "output_size contradicts the repeats: eager doesn't look at it, the device takes its word for it",
        ("repeat_interleave", ALL, "empty"),
    ),
    *_rows(
        "an out= without elements gets its rows one after the other, LAPACK's kernels on the CPU give it columns",
        ("cholesky_inverse ormqr linalg.householder_product", ALL, "strides"),
    ),
    *_rows(
        "PyTorch's Python code accumulates in another dtype on devices of other names than cpu",
        (
            "nn.functional.linear_cross_entropy.chunked nn.functional.linear_cross_entropy.chunked_none",
            (BF16, F16),
            "forward noncontiguous grad",
        ),
    ),
    *_rows(
        "an out= that shares its memory with an argument is refused when the graph runs",
        ("cat", ALL, "error"),
    ),
    *_rows(
        "eigenvectors come in columns from eager's kernel, in rows from the device",
        ("linalg.eig", (C64,), "strides"),
    ),
    *_rows(
        "eager's BLAS conjugates while it multiplies; the orthogonalisation that follows makes the difference grow past tolerances",
        ("svd_lowrank", (C64,), "forward noncontiguous grad"),
    ),
    *_rows("the sign of a zero that is the sum of nothing", ("vdot", (C64,), "empty")),
]


def is_exception(op: str, dtype: torch.dtype | None, aspect: str) -> bool:
    """Whether the op is listed to differ in this aspect; DTYPE None for `error`, which has none."""
    return any(
        row.op == op and row.aspect == aspect and (dtype is None or not row.dtypes or dtype in row.dtypes)
        for row in EXCEPTIONS
    )


def within_tolerance(op: str, dtype: torch.dtype) -> bool:
    """Whether the op is compared within tolerances instead of bit for bit."""
    return any(
        (op == name or (name.endswith(".") and op.startswith(name))) and (not dtypes or dtype in dtypes)
        for name, (dtypes, _reason) in WITHIN_TOLERANCE.items()
    )

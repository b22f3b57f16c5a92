"""Ops that kernels can express, each as a kernel of its own, against eager within the tolerances of its dtype.

A program of one op is left to PyTorch otherwise, so the sweep over PyTorch's database does not see generated code.
"""

import pytest
import torch

import op_checks
import torch_spool
from op_checks import FORWARD, GRAD, INPLACE, NONCONTIGUOUS, OUT, check
from op_exceptions import is_exception
from op_samples import OPS, differentiable_dtypes_of, dtypes_of
from torch_spool.debug import metrics

POINTWISE = """
abs add addcdiv addcmul acos acosh asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not
bitwise_or bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min clone copysign cos cosh
eq erf erfc exp exp2 expm1 fill floor fmax fmin fmod full_like ge gt hypot isinf isnan le lerp lgamma log log10
log1p log2 logical_and logical_not logical_or logical_xor lt masked_fill maximum minimum mul ne neg
nn.functional.elu nn.functional.gelu nn.functional.hardsigmoid nn.functional.hardswish nn.functional.hardtanh
nn.functional.leaky_relu nn.functional.mse_loss nn.functional.relu nn.functional.silu nn.functional.softplus
nn.functional.threshold ones_like reciprocal remainder round rsqrt rsub sgn sigmoid sign sin sinh sqrt sub tan
tanh trunc where zeros_like
""".split()
REDUCTIONS = "all amax amin any mean prod sum".split()
# Known differences, each by its reason; one that is gone fails.
DIFFERENT = {
    "add": "float16 with a factor: the kernel rounds once, eager rounds the factor and the product first",
    "nn.functional.gelu": "out=: the kernel writes the values where eager leaves the result untouched",
    "rsqrt": "bfloat16, gradient: eager's own steps round in another order; 1.6 % in some elements",
}
NAMES = [name for name in OPS if name in POINTWISE + REDUCTIONS]


@pytest.fixture(autouse=True)
def one_kernel_an_op(monkeypatch: pytest.MonkeyPatch):
    # Kernels compute transcendental functions and sums in another order of operations than ATen's.
    monkeypatch.setattr(op_checks, "within_tolerance", lambda op, dtype: True)
    with torch_spool.options(exact=False, fuse="always"):
        yield


def test_the_list_names_ops_of_the_database() -> None:
    assert sorted(NAMES) == sorted(POINTWISE + REDUCTIONS)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=DIFFERENT[name]))
        if name in DIFFERENT
        else name
        for name in NAMES
    ],
)
def test_an_op_as_a_kernel_gives_what_eager_gives(name: str, dev: torch.device) -> None:
    op = OPS[name]
    number = NAMES.index(name)
    dtypes = dtypes_of(op)
    # float32 and bfloat16 always, the others in rotation.
    chosen = {dtypes[number % len(dtypes)]} | {torch.float32, torch.bfloat16}.intersection(dtypes)
    aspects = {FORWARD, INPLACE, OUT, NONCONTIGUOUS}
    wrong = []
    for dtype in sorted(chosen, key=str):
        wanted = aspects | ({GRAD} if dtype in differentiable_dtypes_of(op) else set())
        for aspect, outcome in check(op, dtype, dev, wanted, 2).items():
            if outcome.failure is not None and not is_exception(name, dtype, aspect):
                wrong.append(f"{aspect} {dtype}: {outcome.failure}")
    assert not wrong, "\n".join(wrong)
    assert not [c for c in metrics.counter_names() if c.startswith("FusionFallback")]

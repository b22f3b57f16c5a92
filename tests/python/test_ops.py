"""Every operation of PyTorch's own database gives on the lazy device what eager gives on the CPU.

CI runs a fixed sample: of each op one dtype (in rotation), SAMPLED of its samples, all aspects. `--full-ops` or SPOOL_FULL_OPS=1
(which `./dev test --full` sets) runs all dtypes with FULL samples. What may differ is listed in op_exceptions.py and is always
looked for in FULL samples, so that an exception that is none any more is found.
"""

from collections import defaultdict
from typing import Any

import pytest
import torch

from op_checks import ASPECTS, ERROR, FORWARD, GRAD, STRIDES, Outcome, check, check_errors
from op_exceptions import EXCEPTIONS, is_exception
from op_samples import DTYPES, OPS, differentiable_dtypes_of, dtypes_of

# Bit for bit; test_fused_ops.py looks at kernels.
pytestmark = pytest.mark.usefixtures("exact")

SAMPLED = 2
FULL = 4
LEAST_SHARE = 0.99  # of the pairs of op and dtype, that have no exception


def sampled_dtypes(number: int, op: Any) -> dict[torch.dtype, set[str]]:
    """The aspects that CI looks at in each dtype: one dtype in rotation, and one that has gradients if it has none."""
    plan: dict[torch.dtype, set[str]] = defaultdict(set)
    if dtypes := dtypes_of(op):
        plan[dtypes[number % len(dtypes)]] |= set(ASPECTS) - {ERROR, GRAD}
    if dtypes := differentiable_dtypes_of(op):
        plan[dtypes[number % len(dtypes)]].add(GRAD)
    return plan


def all_dtypes(op: Any) -> dict[torch.dtype, set[str]]:
    """All aspects in all dtypes that have them."""
    differentiable = differentiable_dtypes_of(op)
    plan = {dtype: set(ASPECTS) - {ERROR, GRAD} for dtype in dtypes_of(op)}
    for dtype in differentiable:
        plan.setdefault(dtype, set()).add(GRAD)
    return plan


def outcomes(
    name: str, number: int, dev: torch.device, full: bool
) -> dict[tuple[torch.dtype | None, str], Outcome]:
    """What came of the op, by dtype and aspect."""
    op = OPS[name]
    found: dict[tuple[torch.dtype | None, str], Outcome] = {(None, ERROR): check_errors(op, dev)}
    for dtype, aspects in (all_dtypes(op) if full else sampled_dtypes(number, op)).items():
        listed = {aspect for aspect in aspects if is_exception(name, dtype, aspect)}
        if STRIDES in listed:  # they are looked at with all other aspects
            listed = aspects
        for some, count in ((aspects - listed, FULL if full else SAMPLED), (listed, FULL)):
            if some:
                for aspect, outcome in check(op, dtype, dev, some, count).items():
                    before = found.get((dtype, aspect))
                    if before is None or before.failure is None:
                        found[dtype, aspect] = outcome
    return found


@pytest.mark.parametrize("name", OPS)
def test_op_gives_what_eager_gives(
    name: str, dev: torch.device, request: pytest.FixtureRequest, record_property: Any
) -> None:
    number = list(OPS).index(name)
    full = request.config.getoption("full_ops")
    found = outcomes(name, number, dev, full)
    wrong = []
    for (dtype, aspect), outcome in found.items():
        what = f"{aspect} {'' if dtype is None else str(dtype).removeprefix('torch.')}".strip()
        listed = is_exception(name, dtype, aspect)
        if outcome.failure is not None and not listed:
            wrong.append(f"{what}: {outcome.failure}")
        if outcome.failure is None and outcome.checked and listed:
            wrong.append(f"{what}: listed in op_exceptions.py, but it does what eager does: remove the row")
    record_property("ops", summary(found))
    assert not wrong, "\n".join([f"{name} differs from eager:", *wrong])


def summary(found: dict[tuple[torch.dtype | None, str], Outcome]) -> list[tuple[str, str, bool]]:
    """(dtype, aspect, whether it passed) of all that was compared, for the report at the end of the run."""
    return [
        ("-" if dtype is None else str(dtype).removeprefix("torch."), aspect, outcome.failure is None)
        for (dtype, aspect), outcome in found.items()
        if outcome.checked
    ]


def test_exceptions_are_about_ops_dtypes_and_aspects_that_exist() -> None:
    for row in EXCEPTIONS:
        assert row.op in OPS, f"{row}: no such op"
        assert row.aspect in ASPECTS, f"{row}: no such aspect"
        assert set(row.dtypes) <= set(dtypes_of(OPS[row.op])), f"{row}: the op has no such dtype"
        assert row.reason
    rows = [(row.op, row.aspect, dtype) for row in EXCEPTIONS for dtype in row.dtypes or DTYPES]
    assert len(rows) == len(set(rows)), "an exception is listed twice"


def test_at_least_99_percent_of_op_dtype_pairs_have_no_exception() -> None:
    pairs = [(name, dtype) for name, op in OPS.items() for dtype in dtypes_of(op)]
    aspects = [aspect for aspect in ASPECTS if aspect != ERROR]
    clean = [pair for pair in pairs if not any(is_exception(*pair, aspect) for aspect in aspects)]
    share = len(clean) / len(pairs)
    print(f"{len(clean)} of {len(pairs)} pairs of op and dtype have no exception: {share:.2%}")
    assert share >= LEAST_SHARE


def test_an_op_that_gives_something_else_is_found(dev: torch.device) -> None:
    op = OPS["sin"]

    class Wrong:
        def __getattr__(self, attribute: str) -> Any:
            return getattr(op, attribute)

        def __call__(self, x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
            return x.cos() if x.device.type == "xla" else x.sin()

    got = check(Wrong(), torch.float32, dev, {FORWARD}, 1)
    assert got[FORWARD].failure is not None

"""One op of PyTorch's database on the lazy device against eager on the CPU, aspect by aspect.

Results are compared bit for bit where eager gives the same bits whenever it runs; where it does not, and for the ops of
op_exceptions.WITHIN_TOLERANCE, within the tolerances of torch.testing.assert_close for the dtype.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

import torch_spool
from op_exceptions import within_tolerance
from op_samples import NotApplicable, Placed, samples_of, without_elements

FORWARD, METHOD, INPLACE, OUT, NONCONTIGUOUS, EMPTY, GRAD, STRIDES, ERROR = ASPECTS = (
    "forward",  # torch.op(…): values, dtype, shape, device
    "method",  # tensor.op(…)
    "inplace",  # tensor.op_(…): the result and what became of the tensor
    "out",  # out= of the right shape, without elements, and with gaps between its elements
    "noncontiguous",  # all tensors with gaps between their elements
    "empty",  # all tensors without elements
    "grad",  # gradients of all floating results by all floating arguments
    "strides",  # of the results of any of the above but grad
    "error",  # what eager refuses is refused at the call with the same type of exception
)
# Eager's results hold what memory held: only geometry is compared. The second set: those of tensors without elements.
UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}
UNINITIALISED_OF_NOTHING = {"nn.functional.multi_margin_loss", "nn.functional.multilabel_margin_loss"}
Call = Callable[[Placed], Any]


@dataclass
class Outcome:
    """What came of one aspect of an op in one dtype: how many samples eager took, and the first difference."""

    checked: int = 0
    failure: str | None = None

    def fail(self, message: str) -> None:
        self.failure = self.failure or message.split("\n", 1)[0][:300]


class Differs(AssertionError):
    """The lazy device gave something else than the CPU."""


class OtherStrides(AssertionError):
    """It gave the same values in another layout."""


def check(
    op: Any, dtype: torch.dtype, device: torch.device, aspects: Iterable[str], count: int
) -> dict[str, Outcome]:
    """Runs ASPECTS (not ERROR) of OP on COUNT samples. An aspect that the op hasn't, or eager refuses, has checked nothing."""
    outcomes = {aspect: Outcome() for aspect in ASPECTS}
    wanted = set(aspects)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if wanted - {GRAD}:
            for sample in _samples(op, dtype, count, requires_grad=False):
                for aspect, call, variant in _runs(op, sample, wanted):
                    _compare(
                        op, variant, call, device, outcomes, aspect, within_tolerance(op.full_name, dtype)
                    )
        if GRAD in wanted:
            for sample in _samples(op, dtype, count, requires_grad=True):
                tolerant = within_tolerance(op.full_name, dtype)
                _compare(op, sample, _gradient_call(op, sample), device, outcomes, GRAD, tolerant)
    return {a: o for a, o in outcomes.items() if a in wanted or (a == STRIDES and o.failure is not None)}


def check_errors(op: Any, device: torch.device) -> Outcome:
    """The op's arguments that must be refused."""
    outcome = Outcome()
    if op.error_inputs_func is None:
        return outcome
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for error in op.error_inputs("cpu"):
            sample = error.sample_input
            if not _applies(sample):
                continue
            expected = _exception(lambda s=sample: _function(op)(Placed(s, torch.device("cpu"))))
            if expected is None:
                continue
            outcome.checked += 1
            on_device = Placed(sample, device)
            got = _exception(lambda p=on_device: _function(op)(p))
            late = None if got is not None else _exception(lambda: torch_spool.sync(wait=True))
            if type(got) is not type(expected):
                outcome.fail(
                    f"{_words(sample)}: expected {_said(expected)}, got {_said(got)}"
                    + ("" if late is None else f" and when it ran {_said(late)}")
                )
    return outcome


def _samples(op: Any, dtype: torch.dtype, count: int, requires_grad: bool) -> list[Any]:
    try:
        samples = samples_of(op, dtype, count, requires_grad)
    except (
        RuntimeError,
        ValueError,
        TypeError,
    ):  # the database lists dtypes of which the CPU can't make samples
        return []
    return [sample for sample in samples if _applies(sample)]


def _applies(sample: Any) -> bool:
    try:
        Placed(sample, torch.device("cpu"))
    except NotApplicable:
        return False
    return True


def _runs(op: Any, sample: Any, wanted: set[str]) -> Iterable[tuple[str, Call, Any]]:
    """(aspect, what to call, the sample to call it with)."""
    if FORWARD in wanted or STRIDES in wanted:
        yield FORWARD, _function_and_arguments(op), sample
    method = op.get_method()
    if METHOD in wanted and method is not None and method is not op.get_op():
        yield METHOD, _variant(method), sample
    if INPLACE in wanted and op.get_inplace() is not None and not sample.broadcasts_input:
        yield INPLACE, _inplace(op.get_inplace()), sample
    if OUT in wanted and op.supports_out:
        for make in (_out_like, _out_without_elements, _out_with_gaps):
            yield OUT, _out(op, make), sample
    if NONCONTIGUOUS in wanted:
        yield NONCONTIGUOUS, _function(op), sample.noncontiguous()
    if EMPTY in wanted:
        for cut in without_elements(sample):
            yield EMPTY, _function(op), cut


def _function(op: Any) -> Call:
    return lambda placed: op(placed.input, *placed.args, **placed.kwargs)


def _function_and_arguments(op: Any) -> Call:
    """Beside the results what became of the arguments: some ops write to them."""
    return lambda placed: (op(placed.input, *placed.args, **placed.kwargs), placed.tensors)


def _variant(method: Callable[..., Any]) -> Call:
    return lambda placed: method(placed.input, *placed.args, **placed.kwargs)


def _inplace(method: Callable[..., Any]) -> Call:
    def call(placed: Placed) -> Any:
        result = method(placed.input, *placed.args, **placed.kwargs)
        return result is placed.input, result, placed.input

    return call


def _out_like(result: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(result)


def _out_without_elements(result: torch.Tensor) -> torch.Tensor:
    return torch.zeros(0, dtype=result.dtype, device=result.device)


def _out_with_gaps(result: torch.Tensor) -> torch.Tensor:
    return torch.zeros(*result.shape, 2, dtype=result.dtype, device=result.device)[..., 0]


def _out(op: Any, make: Callable[[torch.Tensor], torch.Tensor]) -> Call:
    def call(placed: Placed) -> Any:
        torch.manual_seed(0)
        results = op(placed.input, *placed.args, **placed.kwargs)
        out = make(results) if isinstance(results, torch.Tensor) else tuple(make(r) for r in results)
        torch.manual_seed(0)
        returned = op(placed.input, *placed.args, **placed.kwargs, out=out)
        return returned is out, out, returned

    return call


def _gradient_call(op: Any, sample: Any) -> Call:
    def call(placed: Placed) -> Any:
        results = sample.output_process_fn_grad(op(placed.input, *placed.args, **placed.kwargs))
        outputs = [t for t in _flat(results) if isinstance(t, torch.Tensor) and t.requires_grad]
        if not outputs or not placed.leaves:
            raise NotApplicable
        torch.manual_seed(1)
        seeds = [torch.randn(t.shape, dtype=t.dtype).to(t.device) for t in outputs]
        return torch.autograd.grad(outputs, placed.leaves, seeds, allow_unused=True)

    return call


def _compare(
    op: Any,
    sample: Any,
    call: Call,
    device: torch.device,
    outcomes: dict[str, Outcome],
    aspect: str,
    tolerant: bool,
) -> None:
    """Runs CALL on both devices. What eager refuses is no subject here (`error` has what must be refused)."""

    def run(on: torch.device) -> Any:
        placed = Placed(sample, on)
        torch.manual_seed(0)
        return call(placed)

    try:
        want = run(torch.device("cpu"))
    except Exception:
        return
    outcomes[aspect].checked += 1
    outcomes[STRIDES].checked += 1
    try:
        _equal(run(device), want, device, values=_initialised(op, aspect))
    except OtherStrides as other:
        if aspect != GRAD:  # PyTorch promises no layout of gradients
            outcomes[STRIDES].fail(f"{aspect} {_words(sample)}: {other}")
    except Differs as difference:
        if not ((tolerant or _varies_on_cpu(run, want)) and _close(run(device), want)):
            outcomes[aspect].fail(f"{_words(sample)}: {difference}")
    except Exception as error:
        outcomes[aspect].fail(f"{_words(sample)}: {_said(error)}")
        _exception(
            lambda: torch_spool.sync(wait=True)
        )  # what else has failed of this sample is not the next one's


def _initialised(op: Any, aspect: str) -> bool:
    return op.name not in UNINITIALISED and not (aspect == EMPTY and op.name in UNINITIALISED_OF_NOTHING)


def _varies_on_cpu(run: Callable[[torch.device], Any], want: Any) -> bool:
    """Whether eager gives other bits when it runs again: some kernels add in an order that depends on where memory lies."""
    for _ in range(4):
        try:
            _equal(run(torch.device("cpu")), want, torch.device("cpu"), values=True)
        except OtherStrides:
            return False
        except Differs:
            return True
    return False


def _close(got: Any, want: Any) -> bool:
    """Within the tolerances that torch.testing.assert_close has for the dtype."""
    try:
        for g, w in zip(_flat(got), _flat(want), strict=True):
            if isinstance(w, torch.Tensor):
                if not isinstance(g, torch.Tensor):
                    return False
                torch.testing.assert_close(g.detach().cpu(), w.detach(), equal_nan=True)
    except AssertionError:
        return False
    return True


def _equal(got: Any, want: Any, device: torch.device, values: bool) -> None:
    got, want = _flat(got), _flat(want)
    if len(got) != len(want):
        raise Differs(f"{len(got)} results, expected {len(want)}")
    strides = None
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if isinstance(w, torch.Tensor) and isinstance(g, torch.Tensor):
            _equal_tensors(g, w, device, values, f"result {i}")
            if g.stride() != w.stride() and w.numel() and strides is None:  # those of nothing mean nothing
                strides = f"result {i}: strides {g.stride()}, expected {w.stride()} of shape {tuple(w.shape)}"
        elif type(g) is not type(w) or (g != w and g == g):
            raise Differs(f"result {i}: {g!r}, expected {w!r}")
    if strides is not None:
        raise OtherStrides(strides)


def _equal_tensors(
    got: torch.Tensor, want: torch.Tensor, device: torch.device, values: bool, what: str
) -> None:
    for attribute in ("dtype", "shape", "requires_grad", "layout"):
        g, w = getattr(got, attribute), getattr(want, attribute)
        if g != w:
            raise Differs(f"{what}: {attribute} {g}, expected {w}")
    if got.device.type != device.type:
        raise Differs(f"{what}: on {got.device}, expected {device}")
    if not values:
        return
    got, want = got.detach().cpu().resolve_conj().resolve_neg(), want.detach().resolve_conj().resolve_neg()
    got_bits, want_bits = _bits(got), _bits(want)
    unequal = (got_bits != want_bits) & ~(_real(got).isnan() & _real(want).isnan())
    if bool(unequal.any()):
        number = int(unequal.sum())
        at = unequal.reshape(-1).nonzero()[0].item()
        raise Differs(
            f"{what} of shape {tuple(want.shape)}: {number} of {unequal.numel()} values differ, "
            f"the first is {_real(got).reshape(-1)[at].item()}, expected {_real(want).reshape(-1)[at].item()}"
        )


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    numbers = _real(tensor)
    return numbers.contiguous().view(whole[numbers.element_size()])


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _flat(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _flat(item)]
    return [value]


def _exception(call: Callable[[], Any]) -> Exception | None:
    torch.manual_seed(0)
    try:
        call()
    except Exception as error:
        return error
    return None


def _said(error: Exception | None) -> str:
    return "nothing" if error is None else f"{type(error).__name__}: {str(error).strip()[:160]!r}"


def _words(sample: Any) -> str:
    def show(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, (list, tuple)):
            return "(" + ", ".join(show(item) for item in value) + ")"
        return repr(value)[:40]

    parts = [
        show(sample.input),
        *map(show, sample.args),
        *(f"{k}={show(v)}" for k, v in sample.kwargs.items()),
    ]
    return ("(" + ", ".join(parts) + ")")[:120]

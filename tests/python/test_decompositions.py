"""Composite operations, taken apart, give what eager's own kernels give: forward and backward, in all floating-point types.

Results are held against eager in float64: they may be as far from it as eager's own in that type, and a little more.
The last test runs the float32 cases again with the pieces on PyTorch's kernels (SPOOL_DECOMPOSE=1 SPOOL_FUSE=never), so that what is
taken apart is right whatever fuses it.
"""

import itertools
import os
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F

import torch_spool
from helpers import run_python

DTYPES = [torch.float32, torch.float64, torch.bfloat16]
TOLERANCES = {torch.float32: 3e-6, torch.float64: 1e-12, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}

APART = os.environ.get("SPOOL_DECOMPOSE") == "1"

Tensors = Sequence[torch.Tensor]
Program = Callable[..., Tensors]


def close(
    got: torch.Tensor, want: torch.Tensor, exact: torch.Tensor, what: str, strides: bool = True
) -> None:
    """GOT is as near to EXACT (float64) as WANT, eager's result in the same type, within the type's tolerance."""
    got = got.detach().cpu()
    assert got.dtype == want.dtype and got.shape == want.shape, (
        f"{what}: {got.dtype} {got.shape}, {want.dtype} {want.shape}"
    )
    assert not strides or got.stride() == want.stride(), (
        f"{what}: strides {got.stride()}, eager's {want.stride()}"
    )
    assert torch.equal(got.isnan(), want.isnan()), f"{what}: NaNs differ"
    if got.numel() == 0 or not got.dtype.is_floating_point:
        assert torch.equal(got, want), what
        return
    exact = exact.detach().double()
    finite = exact.isfinite()
    scale = max(exact[finite].abs().max().item() if finite.any() else 0.0, 1.0)
    error = (got.double() - exact).abs()[finite]
    eager = (want.detach().double() - exact).abs()[finite]
    allowed = TOLERANCES[got.dtype] * (exact.abs()[finite] + 0.1 * scale) + (
        2 * eager.max() if finite.any() else 0
    )
    assert bool((error <= allowed).all()), (
        f"{what}: off by {(error - allowed).max()} more than allowed of {allowed.max()}"
    )
    assert torch.equal(got[got.isinf()], want[want.isinf()]), f"{what}: infinities differ"


def convert(arg: object, dtype: torch.dtype, device: str) -> object:
    if isinstance(arg, torch.Tensor):
        made = arg.detach().to(dtype if arg.is_floating_point() else arg.dtype).to(device)
        return made.requires_grad_(arg.requires_grad)
    return arg


def compare(
    program: Program, args: Sequence[object], dtype: torch.dtype, backward: bool = True, strides: bool = True
) -> None:
    """PROGRAM(*ARGS), and the gradients of all arguments that require one, on the device and in eager."""

    def run(dtype: torch.dtype, device: str) -> list[torch.Tensor]:
        made = [convert(arg, dtype, device) for arg in args]
        outputs = list(program(*made))
        leaves = [arg for arg in made if isinstance(arg, torch.Tensor) and arg.requires_grad]
        differentiable = [out for out in outputs if out.requires_grad]
        if backward and leaves and differentiable:
            generator = torch.Generator().manual_seed(1)
            seeds = [
                torch.randn(out.shape, generator=generator).to(out.dtype).to(out.device)
                for out in differentiable
            ]
            outputs += torch.autograd.grad(differentiable, leaves, seeds, materialize_grads=True)
        if device != "cpu":
            torch_spool.sync()
        return outputs

    exact_args = [convert(arg, dtype, "cpu") for arg in args]  # rounded to the type first
    args = exact_args
    got, want, exact = run(dtype, "xla"), run(dtype, "cpu"), run(torch.float64, "cpu")
    for i, (g, w, e) in enumerate(zip(got, want, exact, strict=True)):
        close(g, w, e, f"result {i}", strides)


def leaf(*sizes: int, scale: float = 1.0, shift: float = 0.0) -> torch.Tensor:
    return (torch.randn(*sizes, dtype=torch.float64) * scale + shift).requires_grad_()


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.detach().to(memory_format=torch.channels_last).requires_grad_()


dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))


@dtypes
@pytest.mark.parametrize(
    "sizes,shape", [((4, 5, 6), (6,)), ((3, 7, 5), (7, 5)), ((31,), (31,)), ((2, 1), (1,)), ((0, 8), (8,))]
)
@pytest.mark.parametrize("affine", ["none", "scale", "both"])
def test_layer_norm(sizes, shape, affine, dtype):
    weight = leaf(*shape) if affine != "none" else None
    bias = leaf(*shape) if affine == "both" else None
    compare(lambda x, w, b: [F.layer_norm(x, shape, w, b)], [leaf(*sizes, shift=3), weight, bias], dtype)


def test_layer_norm_of_strided_input():
    compare(
        lambda x, w, b: [F.layer_norm(x.transpose(1, 2), (4,), w, b)],
        [leaf(3, 4, 5), leaf(4), leaf(4)],
        torch.float32,
    )


def test_layer_norm_of_bfloat16_with_float32_parameters():
    x, w, b = leaf(6, 32), leaf(32), leaf(32)

    def run(device: str) -> list[torch.Tensor]:
        made = [
            x.detach().bfloat16().to(device).requires_grad_(),
            *(p.detach().float().to(device).requires_grad_() for p in (w, b)),
        ]
        out = F.layer_norm(made[0], (32,), made[1], made[2])
        return [out, *torch.autograd.grad(out.float().square().sum(), made)]

    for got, want in zip(run("xla"), run("cpu"), strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=2e-2, atol=2e-2)


def test_layer_norm_of_values_far_from_zero():
    compare(lambda x: [F.layer_norm(x, (512,))], [leaf(4, 512, shift=100)], torch.float32)


BATCHES = {
    "2d": (6, 5),
    "3d": (4, 3, 7),
    "4d": (3, 5, 4, 6),
    "one channel": (4, 1, 3, 3),
    "5d": (2, 3, 2, 3, 4),
}


@dtypes
@pytest.mark.parametrize("sizes", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
@pytest.mark.parametrize("tracked", [True, False], ids=["tracked", "untracked"])
def test_batch_norm(sizes, training, affine, tracked, dtype):
    if not training and not tracked:
        pytest.skip("needs statistics")
    channels = sizes[1]

    def program(x, w, b, mean, variance):
        mean, variance = (t if t is None else t.clone() for t in (mean, variance))
        out = F.batch_norm(x, mean, variance, w, b, training, 0.3, 1e-4)
        return [out, *([mean, variance] if tracked else [])]

    mean = torch.randn(channels, dtype=torch.float64) if tracked else None
    variance = torch.rand(channels, dtype=torch.float64) + 0.5 if tracked else None
    parameters = [leaf(channels), leaf(channels)] if affine else [None, None]
    compare(program, [leaf(*sizes, shift=1), *parameters, mean, variance], dtype)


@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
def test_batch_norm_channels_last(training):
    def program(x, w, b, mean, variance):
        return [F.relu(F.batch_norm(x, mean.clone(), variance.clone(), w, b, training))]

    x = channels_last(leaf(4, 6, 5, 3))
    compare(program, [x, leaf(6), leaf(6), torch.zeros(6), torch.ones(6)], torch.float32)


def test_batch_norm_updates_statistics_over_steps():
    model = torch.nn.BatchNorm2d(4)
    twin = torch.nn.BatchNorm2d(4).to("xla")
    for step in range(4):
        x = torch.randn(5, 4, 3, 3) * (step + 1) + step
        model(x)
        twin(x.to("xla"))
        torch_spool.sync()
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(dict(twin.named_buffers())[name].cpu(), buffer)


def test_batch_norm_with_a_cumulative_average():
    model = torch.nn.BatchNorm1d(3, momentum=None)
    twin = torch.nn.BatchNorm1d(3, momentum=None).to("xla")
    for _ in range(3):
        x = torch.randn(7, 3)
        torch.testing.assert_close(twin(x.to("xla")).cpu(), model(x))
    torch.testing.assert_close(twin.running_var.cpu(), model.running_var)


@dtypes
@pytest.mark.parametrize("sizes,groups", [((2, 6, 5), 3), ((3, 4, 2, 3), 1), ((2, 8, 3, 3), 8), ((1, 4), 2)])
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
def test_group_norm(sizes, groups, affine, dtype):
    parameters = [leaf(sizes[1]), leaf(sizes[1])] if affine else [None, None]
    compare(lambda x, w, b: [F.group_norm(x, groups, w, b)], [leaf(*sizes, shift=2), *parameters], dtype)


def test_group_norm_channels_last():
    # PyTorch makes the input contiguous first on all devices but the CPU, so the result lies differently.
    x = channels_last(leaf(3, 6, 4, 5))
    compare(lambda x, w, b: [F.group_norm(x, 2, w, b)], [x, leaf(6), leaf(6)], torch.float32, strides=False)


@dtypes
@pytest.mark.parametrize("kind", [F.softmax, F.log_softmax])
@pytest.mark.parametrize(
    "sizes,dim", [((5, 7), 1), ((5, 7), 0), ((2, 3, 4), -2), ((9,), 0), ((3, 0, 2), 2), ((4, 1), 1)]
)
def test_softmax(kind, sizes, dim, dtype):
    compare(lambda x: [kind(x, dim)], [leaf(*sizes, scale=5)], dtype)


@pytest.mark.parametrize("kind", [F.softmax, F.log_softmax])
def test_softmax_of_infinities_and_large_values(kind):
    inf = float("inf")
    x = torch.tensor([[0, -inf, 1], [-inf, -inf, -inf], [inf, 0, 0], [1e30, 0, 1], [float("nan"), 0, 0]])
    compare(lambda x: [kind(x, 1)], [x], torch.float32, backward=False)


@pytest.mark.parametrize("kind", [F.softmax, F.log_softmax])
def test_softmax_of_a_transposed_matrix(kind):
    compare(lambda x: [kind(x.t(), 1)], [leaf(6, 4)], torch.float32)


@dtypes
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [True, False], ids=["weighted", "plain"])
@pytest.mark.parametrize("ignored", ["none", "some", "class", "all"])
@pytest.mark.parametrize("pixels", [False, True], ids=["rows", "pixels"])
def test_cross_entropy(reduction, weighted, ignored, pixels, dtype):
    sizes = (4, 5, 3, 2) if pixels else (9, 5)
    target = torch.randint(5, sizes[:1] + sizes[2:])
    index = 3 if ignored == "class" else -100
    if ignored == "some":
        target.view(-1)[::3] = index
    if ignored == "all":
        target.fill_(index)
    weight = torch.rand(5, dtype=torch.float64) if weighted else None

    def program(x, target, weight):
        return [F.cross_entropy(x, target, weight, reduction=reduction, ignore_index=index)]

    compare(program, [leaf(*sizes, scale=3), target, weight], dtype)


def test_cross_entropy_with_label_smoothing():
    target = torch.randint(6, (8,))
    target[2] = -100
    for weight, reduction in itertools.product([None, torch.rand(6)], ["mean", "sum", "none"]):
        compare(
            lambda x, t, w, reduction=reduction: [
                F.cross_entropy(x, t, w, reduction=reduction, label_smoothing=0.2)
            ],
            [leaf(8, 6), target, weight],
            torch.float32,
        )


def test_cross_entropy_with_probabilities_as_target():
    compare(lambda x, t: [F.cross_entropy(x, t.softmax(1))], [leaf(4, 6), leaf(4, 6)], torch.float32)


def test_cross_entropy_of_an_ignored_class_that_is_impossible():
    x = torch.zeros(2, 3)
    x[0, 1] = -float("inf")
    compare(
        lambda x, t: [F.cross_entropy(x, t, ignore_index=1)],
        [x, torch.tensor([1, 2])],
        torch.float32,
        backward=False,
    )


def test_targets_out_of_range_are_refused():
    x = torch.randn(4, 3, device="xla")
    loss = F.cross_entropy(x, torch.tensor([0, 1, 3, 2], device="xla"))
    with pytest.raises(IndexError, match="Target 3 is out of bounds"):
        loss.item()


def test_nll_loss_of_given_probabilities():
    compare(lambda x, t: [F.nll_loss(x, t)], [leaf(6, 4), torch.randint(4, (6,))], torch.float32)


LOSSES = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": lambda x, t, reduction: F.smooth_l1_loss(x, t, reduction=reduction, beta=0.7),
    "smooth_l1 of 0": lambda x, t, reduction: F.smooth_l1_loss(x, t, reduction=reduction, beta=0.0),
    "huber": lambda x, t, reduction: F.huber_loss(x, t, reduction=reduction, delta=0.6),
    "bce": lambda x, t, reduction: F.binary_cross_entropy(x.sigmoid(), t.sigmoid(), reduction=reduction),
    "bce with logits": lambda x, t, reduction: F.binary_cross_entropy_with_logits(
        x, t.sigmoid(), reduction=reduction
    ),
    "kl_div": lambda x, t, reduction: F.kl_div(x.log_softmax(1), t.softmax(1), reduction=reduction),
}


@dtypes
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_losses(loss, reduction, dtype):
    compare(
        lambda x, t: [loss(x, t, reduction=reduction)],
        [leaf(5, 6), torch.randn(5, 6, dtype=torch.float64)],
        dtype,
    )


def test_losses_of_equal_input_and_target():
    x = torch.randn(3, 4, dtype=torch.float64).requires_grad_()
    for loss in (LOSSES["smooth_l1"], LOSSES["smooth_l1 of 0"], LOSSES["huber"], F.mse_loss):
        compare(lambda x, t, loss=loss: [loss(x, t, reduction="mean")], [x, x.detach()], torch.float32)


def test_weighted_binary_cross_entropy():
    def program(x, t, w):
        return [F.binary_cross_entropy(x.sigmoid(), t, w)]

    compare(
        program,
        [leaf(4, 3), torch.rand(4, 3, dtype=torch.float64), torch.rand(3, dtype=torch.float64).expand(4, 3)],
        torch.float32,
    )


def test_probabilities_outside_the_unit_interval_are_refused():
    loss = F.binary_cross_entropy(torch.full((3,), 1.5, device="xla"), torch.zeros(3, device="xla"))
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        loss.item()


@dtypes
@pytest.mark.parametrize("function", [torch.var, torch.std, torch.var_mean, torch.std_mean])
@pytest.mark.parametrize(
    "options", [{}, {"dim": 1}, {"dim": (0, -1), "keepdim": True}, {"dim": 0, "correction": 0}]
)
def test_variance(function, options, dtype):
    def program(x):
        made = function(x, **options)
        return made if isinstance(made, tuple) else [made]

    compare(program, [leaf(4, 5, 6, shift=2)], dtype)


def test_variance_of_one_element_and_of_too_few():
    compare(
        lambda x: [x.var(1), x.std(1), x.var(1, correction=3)],
        [torch.randn(3, 1)],
        torch.float32,
        backward=False,
    )


@dtypes
def test_log_sigmoid(dtype):
    compare(lambda x: [F.logsigmoid(x)], [leaf(5, 6, scale=30)], dtype)


NUMBERS = [0.5, 2.0, -1.5]
FOREACH = {
    "_foreach_add_": [("list",), ("list", {"alpha": 0.3}), (0.5,), (NUMBERS,), ("scalar tensor",)],
    "_foreach_sub_": [("list", {"alpha": 2}), (0.5,), (NUMBERS,)],
    "_foreach_mul_": [("list",), (0.5,), (NUMBERS,), ("scalar tensor",)],
    "_foreach_div_": [("list",), (0.5,), (NUMBERS,), ("scalar tensor",)],
    "_foreach_maximum_": [("list",), (0.1,), (NUMBERS,)],
    "_foreach_clamp_max_": [("list",), (0.1,), (NUMBERS,)],
    "_foreach_lerp_": [("list", "list"), ("list", 0.3), ("list", 0.7), ("list", NUMBERS)],
    "_foreach_addcmul_": [("list", "list"), ("list", "list", 0.2), ("list", "list", NUMBERS)],
    "_foreach_addcdiv_": [("list", "list", 0.2), ("list", "list", NUMBERS)],
    "_foreach_pow_": [(2,), (NUMBERS,), ("list",)],
    "_foreach_sqrt_": [()],
    "_foreach_neg_": [()],
    "_foreach_reciprocal_": [()],
}


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "made"])
@pytest.mark.parametrize("name", FOREACH)
def test_foreach(name, in_place):
    function = getattr(torch, name if in_place else name.removesuffix("_"))
    for pattern in FOREACH[name]:
        keywords = pattern[-1] if pattern and isinstance(pattern[-1], dict) else {}

        def run(device: str, pattern=pattern, keywords=keywords) -> list[torch.Tensor]:
            generator = torch.Generator().manual_seed(3)

            def tensors() -> list[torch.Tensor]:
                return [
                    torch.rand(s, generator=generator).add(0.1).to(device) for s in ((3,), (2, 4), (1, 5, 2))
                ]

            made = {"list": tensors, "scalar tensor": lambda: torch.tensor(1.25, device=device)}
            selves = tensors()
            args = [
                made[arg]() if isinstance(arg, str) else arg for arg in pattern if not isinstance(arg, dict)
            ]
            results = function(selves, *args, **keywords)
            return selves + ([] if in_place else list(results))

        for got, want in zip(run("xla"), run("cpu"), strict=True):
            torch.testing.assert_close(got.cpu(), want, rtol=1e-6, atol=1e-6)


def test_foreach_of_views_of_one_storage():
    def run(device: str) -> list[torch.Tensor]:
        flat = torch.arange(12.0).to(device)
        views = [flat[:4], flat[4:8].view(2, 2), flat[8:]]
        torch._foreach_add_(views, [flat[4:8], flat[:4].view(2, 2), flat[:4]])
        torch._foreach_zero_(views[:1])
        torch._foreach_copy_(views[1:], [torch.full((2, 2), 7.0, device=device), views[2] * 2])
        return [flat]

    torch.testing.assert_close(run("xla")[0].cpu(), run("cpu")[0], rtol=0, atol=0)


@pytest.mark.skipif(APART, reason="this is that run")
def test_all_of_this_with_the_pieces_on_atens_kernels():
    options = ["-q", "-x", "-p", "no:cacheprovider", "-k", "not float64 and not bfloat16"]
    env = {"SPOOL_DECOMPOSE": "1", "SPOOL_FUSE": "never"}
    done = run_python("-m", "pytest", *options, __file__, env=env, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:]

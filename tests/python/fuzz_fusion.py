"""Random programs of what is fused: pointwise ops, reductions, norms, softmax, losses, views, updates in place, and their gradients.

A program is a list of lines on tensors named t0, t1, …, each smooth enough that rounding stays rounding: eager in float64 tells how far
off a result is, and eager in the program's own type how far it may be.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import hypothesis.strategies as st
import torch

SIZES = [(7,), (3, 5), (4, 1), (1, 8), (17, 33), (6, 64), (2, 3, 5), (2, 4, 9, 3), (3, 2, 130)]
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 5e-2}

UNARY = [
    "torch.tanh({0})",
    "torch.sigmoid({0})",
    "torch.exp(-{0}.abs())",
    "F.gelu({0})",
    "F.silu({0})",
    "F.relu({0})",
    "F.softplus({0})",
    "F.logsigmoid({0})",
    "({0}.abs() + 0.5).sqrt()",
    "({0}.square() + 1).log()",
    "{0} * 0.75 + 0.1",
    "1 / ({0}.abs() + 1)",
    "torch.erf({0})",
    "{0}.sin()",
    "{0}.clone()",
    "{0}.clamp(-1, 1)",
    "{0}.float().to({0}.dtype)",
]
BINARY = [
    "{0} + {1}",
    "{0} - 0.5 * {1}",
    "{0} * torch.tanh({1})",
    "{0} / ({1}.abs() + 1)",
    "torch.maximum({0}, {1})",
    "torch.lerp({0}, {1}, 0.3)",
    "torch.addcmul({0}, {0}.tanh(), {1}.tanh(), value=0.5)",
    "torch.hypot({0}, {1}.abs() + 1)",
]
REDUCED = [
    "{0}.sum({dim}, keepdim={keep}) * 0.1",
    "{0}.mean({dim}, keepdim={keep})",
    "{0}.amax({dim}, keepdim={keep})",
    "{0}.var({dim}, correction=0, keepdim={keep})",
    "({0}.square().mean({dim}, keepdim={keep}) + 0.1).rsqrt()",
]
ROWS = [
    "F.softmax({0}, {dim})",
    "F.log_softmax({0}, {dim}) * 0.2",
    "{0} - {0}.logsumexp({dim}, keepdim=True)",
]
VIEWS = [
    "{0}.transpose(0, -1)",
    "{0}.reshape(-1)",
    "{0}[..., 1:]",
    "{0}[:1]",
    "{0}.unsqueeze(0)",
    "{0}.flatten(-2)",
    "{0}.contiguous()",
]
UPDATES = [
    "{0}.mul_(0.5)",
    "{0}.add_({1}, alpha=0.3)",
    "{0}[..., :1].tanh_()",
    "{0}.sigmoid_()",
    "{0}[0].fill_(0.25)",
]


@dataclass
class Program:
    """Lines, the type and sizes of its first tensors, and the names of what it gives."""

    lines: list[str]
    sizes: list[tuple[int, ...]]
    dtype: torch.dtype
    outputs: list[str]
    gradients: bool

    def __str__(self) -> str:
        made = [f"t{i} = randn{size}" for i, size in enumerate(self.sizes)]
        return "\n".join(
            [f"# {self.dtype}, gradients: {self.gradients}", *made, *self.lines, f"return {self.outputs}"]
        )


def evaluate(line: str, names: dict[str, object]) -> None:
    exec(line, {"torch": torch, "F": torch.nn.functional}, names)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs whose every line is one that eager accepts; names are never bound anew."""
    sizes = draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=3))
    dtype = draw(
        st.sampled_from([torch.float32, torch.float32, torch.float32, torch.bfloat16, torch.float64])
    )
    known: dict[str, object] = {f"t{i}": torch.zeros(size) for i, size in enumerate(sizes)}
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 14))):
        names = sorted(name for name in known if name.startswith("t"))
        first, second = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        rank = known[first].dim()  # type: ignore[attr-defined]
        dim = draw(st.integers(-rank, rank - 1)) if rank else 0
        kind = draw(
            st.sampled_from(
                ["unary"] * 4 + ["binary"] * 4 + ["reduced", "rows", "norm", "view", "update", "loss"]
            )
        )
        keep = draw(st.booleans())
        made = f"t{len(known)} = "
        if kind == "norm":
            pattern = draw(
                st.sampled_from(
                    [
                        "F.layer_norm({0}, {0}.shape[-1:])",
                        "F.layer_norm({0}, {0}.shape[-1:], {0}.detach().flatten()[:{0}.shape[-1]].tanh() + 1)",
                        "F.batch_norm({0}, None, None, training=True, eps=0.1)",
                        "F.group_norm({0}, 1, eps=0.1)",
                    ]
                )
            )
        elif kind == "loss":
            pattern = draw(
                st.sampled_from(
                    [
                        "F.cross_entropy({0}, torch.arange({0}.shape[0], device={0}.device) % {0}.shape[1])",
                        "F.mse_loss({0}, {0}.detach().tanh())",
                        "F.smooth_l1_loss({0}, {0}.detach().tanh(), beta=0.5)",
                        "F.huber_loss({0}, {0}.detach().sin())",
                        "F.binary_cross_entropy_with_logits({0}, {0}.detach().sigmoid())",
                    ]
                )
            )
        elif kind == "update":
            # On a copy, so that gradients stay defined.
            made = f"t{len(known)} = {first}.clone(); "
            pattern = draw(st.sampled_from(UPDATES)).replace("{0}", f"t{len(known)}")
        else:
            patterns = {"unary": UNARY, "binary": BINARY, "reduced": REDUCED, "rows": ROWS, "view": VIEWS}[
                kind
            ]
            pattern = draw(st.sampled_from(patterns))
        line = made + pattern.format(first, second, dim=dim, keep=keep)
        trial = dict(known)
        try:
            evaluate(line, trial)
        except (RuntimeError, IndexError, ValueError):
            continue
        if trial[f"t{len(known)}"].numel() == 0 or trial[f"t{len(known)}"].numel() > 100_000:  # type: ignore[attr-defined]
            continue
        known = trial
        lines.append(line)
    names = sorted(known)
    outputs = draw(st.lists(st.sampled_from(names), max_size=3, unique=True))
    outputs = sorted({*outputs, f"t{len(known) - 1}"})
    return Program(lines, sizes, dtype, outputs, draw(st.booleans()))


def run(program: Program, device: str, dtype: torch.dtype) -> list[torch.Tensor]:
    """What the program gives, then the gradients of its first tensors."""
    generator = torch.Generator().manual_seed(7)
    first = [
        torch.randn(size, generator=generator).to(program.dtype).to(dtype).to(device)
        for size in program.sizes
    ]
    names: dict[str, object] = {f"t{i}": t.requires_grad_(program.gradients) for i, t in enumerate(first)}
    for line in program.lines:
        evaluate(line, names)
    outputs = [names[name] for name in program.outputs]
    results = [out.detach() for out in outputs]  # type: ignore[attr-defined]
    differentiable = [out for out in outputs if out.requires_grad and out.grad_fn is not None]  # type: ignore[attr-defined]
    if differentiable:
        seeds = [
            torch.linspace(-1, 1, out.numel(), dtype=dtype, device=device).view(out.shape)
            for out in differentiable
        ]
        made = torch.autograd.grad(differentiable, first, seeds, allow_unused=True)
        results += [gradient for gradient in made if gradient is not None]
    return [result.cpu() for result in results]


def difference(
    got: Sequence[torch.Tensor], want: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]
) -> str | None:
    """What is further off than rounding explains, or None."""
    if len(got) != len(want):
        return f"{len(got)} results, expected {len(want)}"
    for i, (g, w, e) in enumerate(zip(got, want, exact, strict=True)):
        if g.dtype != w.dtype or g.shape != w.shape:
            return f"result {i}: {g.dtype} {tuple(g.shape)}, expected {w.dtype} {tuple(w.shape)}"
        if g.numel() == 0 or not bool(e.isfinite().all()) or not bool(w.isfinite().all()):
            continue
        scale = max(e.abs().max().item(), 1e-2)
        eager = (w.double() - e).abs().max().item()
        error = (g.double() - e).abs().max().item()
        if not error <= 8 * eager + TOLERANCES[g.dtype] * scale:
            return (
                f"result {i}: off by {error:.3g}; eager is off by {eager:.3g}, values are up to {scale:.3g}"
            )
    return None

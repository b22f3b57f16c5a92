"""Random programs on views and writes, drawn by hypothesis, as lines of Python that run on any device.

A program is drawn by running it on the CPU line by line, so that each line fits the tensors that are there. Its values are such that bit
equality is a fair demand: small multiples of 1/4, which sums in any order leave exact, and no write whose result depends on the order in
which a kernel walks over elements that share their place.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import strategies as st

import torch_spool

Namespace = dict[str, Any]
SIZES = st.integers(0, 4)
NUMBERS = st.sampled_from((0, 1, 2, -1, 3, 0.5, -0.25, 1.5))
DTYPES = ("float32",) * 6 + ("float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool", "complex64")
NAMES = "abcefghk"  # `d` is the device
MOST_ELEMENTS = 64
CUTS = ("sync()", "sync(wait=True)", "barrier()")
# What the lines see beside their tensors.
SHARED: Namespace = {
    "torch": torch,
    "sync": torch_spool.sync,
    "barrier": torch_spool._barrier,
}


class Outcome:
    """What a program left: its tensors, what lines gave (exceptions, read numbers), in order."""

    def __init__(self, device: torch.device) -> None:
        self.names: Namespace = {"d": device}
        self.said: list[str] = []

    def run(self, line: str) -> None:
        """Runs one line; what eager refuses is noted with its type, and the program goes on, as one with `try` would."""
        try:
            exec(compile(line, "<program>", "exec"), {**SHARED, "seen": self._see, **self.names}, self.names)
        except Exception as error:
            self.said.append(f"{type(error).__name__} at: {line}")

    def _see(self, value: object) -> None:
        self.said.append(repr(value))

    def tensors(self) -> dict[str, torch.Tensor]:
        return {n: t for n, t in self.names.items() if isinstance(t, torch.Tensor)}


def run(lines: Sequence[str], device: torch.device, cuts: bool = True) -> Outcome:
    """Runs a program on a device; without CUTS its cuts are left out."""
    outcome = Outcome(device)
    for line in lines:
        if cuts or line not in CUTS:
            outcome.run(line)
    return outcome


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as integers; all NaNs are the same one."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor).contiguous()
    if tensor.is_floating_point():
        tensor = torch.where(tensor.isnan(), torch.full_like(tensor, float("nan")), tensor)
        tensor = tensor.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize])
    return tensor


def facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What can be told of a tensor beside its values."""
    return (
        tensor.dtype,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.storage_offset(),
        tensor._is_view(),
        None if tensor.is_inference() else tensor._version,
        tensor.is_conj(),
        tensor.is_neg(),
        tensor.untyped_storage().nbytes(),
        _about_gradients(tensor),
    )


def _about_gradients(tensor: torch.Tensor) -> object:
    if tensor._is_view() and not tensor._base.requires_grad and tensor._version:
        # Written to, and its base has no gradient (any more): on devices of this name PyTorch runs the view again to find its gradient
        # function, and finds none.
        return "view of a base that has no gradient"
    try:
        return tensor.requires_grad, tensor.is_leaf, tensor.grad_fn is not None
    except RuntimeError as error:  # PyTorch refuses some views whose base was written to
        return type(error).__name__


def difference(got: Outcome, want: Outcome) -> str | None:
    """The first difference between what two devices made of one program, or None."""
    if got.said != want.said:
        return f"said {got.said}, expected {want.said}"
    mine, theirs = got.tensors(), want.tensors()
    if mine.keys() != theirs.keys():
        return f"names {sorted(mine)}, expected {sorted(theirs)}"
    for name, tensor in theirs.items():
        if facts(mine[name]) != facts(tensor):
            return f"{name} is {facts(mine[name])}, expected {facts(tensor)}"
    groups = [
        {n: t.untyped_storage().data_ptr() for n, t in ts.items() if t.numel()} for ts in (mine, theirs)
    ]
    if _shared(groups[0]) != _shared(groups[1]):
        return f"storages are shared by {_shared(groups[0])}, expected {_shared(groups[1])}"
    for name, tensor in theirs.items():
        if not torch.equal(bits(mine[name]), bits(tensor)):
            return f"{name} holds {mine[name].detach().cpu()}, expected {tensor.detach()}"
        grads = [_gradient(t) for t in (mine[name], tensor)]
        if (grads[0] is None) != (grads[1] is None):
            return f"{name}.grad is {grads[0]}, expected {grads[1]}"
        if grads[0] is not None and not torch.equal(bits(grads[0]), bits(grads[1])):
            return f"{name}.grad holds {grads[0].cpu()}, expected {grads[1]}"
    return None


def _usable(tensor: torch.Tensor) -> bool:
    about = _about_gradients(tensor)
    try:
        return not isinstance(about, str) or not tensor.requires_grad
    except RuntimeError:
        return False


def _gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    about = _about_gradients(tensor)
    return tensor.grad if about == (True, True, False) else None


def _shared(pointers: dict[str, int]) -> list[list[str]]:
    return sorted(sorted(n for n in pointers if pointers[n] == p) for p in set(pointers.values()))


class _Writer:
    """Draws lines that fit the tensors which the lines before have left on the CPU."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.on_cpu = Outcome(torch.device("cpu"))

    # Choices

    def one(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, max(low, high)))

    def chance(self, of: int) -> bool:
        return self.draw(st.integers(0, of - 1)) == of - 1

    def number(self, like: torch.Tensor | None = None) -> Any:
        number = self.draw(NUMBERS)
        return (
            int(number)
            if like is not None and not (like.is_floating_point() or like.is_complex())
            else number
        )

    def name(self) -> str:
        """A name for a result: mostly a new one, as long as there are some."""
        free = [n for n in NAMES if n not in self.tensors]
        return free[0] if free and not self.chance(6) else self.one(*NAMES)

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Those there are, without views that PyTorch refuses to tell about."""
        return {n: t for n, t in self.on_cpu.tensors().items() if _usable(t)}

    def some(self, fits: Callable[[torch.Tensor], bool] = lambda t: True) -> tuple[str, torch.Tensor] | None:
        names = [n for n, t in self.tensors.items() if fits(t)]
        return None if not names else (chosen := self.one(*names), self.tensors[chosen])

    def say(self, line: str) -> None:
        self.lines.append(line)
        self.on_cpu.run(line)

    # Programs

    def program(self) -> list[str]:
        self.make()
        while len(self.lines) < 30 and self.integer(0, 11):
            self.one(
                self.make, self.view, self.view, self.view, self.compute, self.compute, self.write, self.write, self.write,
                self.write_part, self.write_part, self.write_indexed, self.rewire, self.gradient, self.loop, self.out,
            )()  # fmt: skip
            if self.chance(3):
                self.say(self.one(*CUTS))
            elif self.chance(8):
                self.read()
        return self.lines

    def shape(self, most_dims: int = 3) -> tuple[int, ...]:
        return tuple(self.draw(st.lists(SIZES, max_size=most_dims)))

    def make(self) -> None:
        shape, dtype = self.shape(), self.one(*DTYPES)
        numel = torch.Size(shape).numel()
        kind = self.one("arange", "arange", "zeros", "full", "ones", "leaf", "empty_strided")
        if kind == "leaf":
            # Not itself a view: of those PyTorch asks for a gradient of the base that it hasn't, on devices of this name (docs).
            shape = shape or (3,)
            source = f"(torch.arange({torch.Size(shape).numel()}, device=d) / 4).reshape({shape})"
            self.say(f"{self.name()} = {source}.clone().requires_grad_()")
        elif kind == "arange":
            scale = " / 4" if dtype in ("float32", "float64", "bfloat16", "float16", "complex64") else ""
            source = f"(torch.arange({numel}, device=d){scale}).to(torch.{dtype})"
            self.say(f"{self.name()} = {source}.reshape({shape})")
        elif kind == "empty_strided":
            strides = tuple(self.integer(1, 5) for _ in shape)
            name = self.name()
            self.say(f"{name} = torch.empty_strided({shape}, {strides}, dtype=torch.{dtype}, device=d)")
            # All of the storage has known content.
            self.say(f"torch.empty(0, dtype=torch.{dtype}, device=d).set_({name}.untyped_storage()).fill_(1)")
        elif kind == "full":
            value = int(self.number()) if dtype in ("int64", "int32", "uint8", "bool") else self.number()
            self.say(f"{self.name()} = torch.full({shape}, {max(value, 0)}, dtype=torch.{dtype}, device=d)")
        else:
            self.say(f"{self.name()} = torch.{kind}({shape}, dtype=torch.{dtype}, device=d)")

    def slice(self, size: int) -> str:
        start, stop = self.integer(0, size), self.integer(0, size)
        step = self.one("", "", ":2", ":3")
        return self.one(f"{min(start, stop)}:{max(start, stop)}{step}", f"{start}:", f":{stop}", "::2", ":")

    def index(self, t: torch.Tensor) -> str:
        """What stands in brackets for a view of a tensor of at least one dimension."""
        parts = []
        for size in t.shape[: self.integer(1, t.dim())]:
            parts.append(str(self.integer(-size, size - 1)) if size and self.chance(2) else self.slice(size))
        if self.chance(5):
            parts.insert(self.integer(0, len(parts)), "None")
        if self.chance(5):
            parts = ["...", *parts] if len(parts) == 1 and t.dim() == 1 else [*parts, "..."]
        return ", ".join(parts)

    def dims(self, t: torch.Tensor) -> tuple[int, int]:
        return self.integer(-t.dim(), t.dim() - 1), self.integer(-t.dim(), t.dim() - 1)

    def view_of(self, name: str, t: torch.Tensor) -> str:
        """An expression that is a view of a tensor (or, rarely, refused)."""
        choices = [
            f"{name}.detach()", f"{name}.data", f"{name}.unsqueeze({self.integer(0, t.dim())})", f"{name}.squeeze()", f"{name}.view(-1)",
            f"{name}.expand({(self.integer(1, 3), *t.shape)})", f"{name}.reshape(-1)", f"{name}.view_as({name})",
            f"torch.ops.aten.alias({name})",
        ]  # fmt: skip
        if t.dim():
            i, j = self.dims(t)
            size = t.shape[i]
            choices += [f"{name}[{self.index(t)}]"] * 6
            choices += [
                f"{name}.transpose({i}, {j})", f"{name}.flatten()", f"{name}.movedim({i}, {j})",
                f"{name}.permute({self.draw(st.permutations(range(t.dim())))})", f"{name}.narrow({i}, {(n := self.integer(0, size))}, {size - n})",
                f"{name}.unfold({i}, {self.integer(1, max(size, 1))}, {self.integer(1, 2)})", f"{name}.chunk(2, {i})[0]",
                f"{name}.tensor_split(2, {i})[-1]", f"{name}.unbind({i})[-1]", f"{name}.split(2, {i})[-1]",
            ]  # fmt: skip
        if t.dim() == 2:
            choices += [f"{name}.t()", f"{name}.mT", f"{name}.T"]
        if t.dim() >= 2:
            choices += [f"{name}.diagonal({self.integer(-1, 1)})"] * 2
        if t.is_complex():
            choices += [
                f"{name}.real",
                f"{name}.imag",
                f"torch.view_as_real({name})",
                f"{name}.conj()",
                f"{name}.conj().imag",
            ] * 2
        elif not t.requires_grad:
            dtype = self.one({1: "uint8"}.get(t.itemsize, "int32"), "int16", "uint8")
            choices += [f"{name}.view(torch.{dtype})"]
            if t.is_floating_point() and t.itemsize >= 4 and t.dim() and t.shape[-1] == 2:
                choices += [f"torch.view_as_complex({name})"] * 3
        if t.dtype != torch.bool and self.chance(2):
            elements = t.untyped_storage().nbytes() // t.itemsize
            shape = self.draw(st.lists(st.integers(0, 3), max_size=3))
            strides, used = [], 0
            for size in shape:
                strides.append(
                    self.integer(0, max(0, (elements - 1 - used) // max(size - 1, 1)) if size > 1 else 3)
                )
                used += max(size - 1, 0) * strides[-1]
            offset = self.integer(0, elements - 1 - used)
            choices += [f"{name}.as_strided({tuple(shape)}, {tuple(strides)}, {offset})"] * 6
        return self.one(*choices)

    def view(self) -> None:
        if (chosen := self.some(lambda t: t.numel() <= MOST_ELEMENTS)) is not None:
            self.say(f"{self.name()} = {self.view_of(*chosen)}")

    def partner(self, t: torch.Tensor, written: bool) -> str:
        """An operand that broadcasts to T; where T is written, one that shares no elements with it in another order."""

        def fits(u: torch.Tensor) -> bool:
            try:
                shape = torch.broadcast_shapes(t.shape, u.shape)
            except RuntimeError:
                return False
            return shape == t.shape if written else shape.numel() <= MOST_ELEMENTS

        chosen = self.some(fits)
        if chosen is None or self.chance(4):
            return str(self.number(t))
        name, other = chosen
        if (
            written
            and _memory_shared(t, other)
            and not _same_place(t, other)
            and not _surely_refused(t, other)
        ):
            return f"{name}.clone()"
        return name

    def compute(self) -> None:
        if (chosen := self.some(lambda t: t.numel() <= MOST_ELEMENTS)) is None:
            return
        name, t = chosen
        other = self.partner(t, written=False)
        choices = [
            f"{name} + {other}", f"{name} * {other}", f"{name} - 1", f"{name}.clone()", f"{name}.contiguous()", f"-{name}", f"{name}.abs()",
            f"{name}.sum()", f"{name} * 2", f"{name}.to(torch.{self.one(*DTYPES)})", f"torch.where({name} != 1, {name}, {other})",
            f"{name} == {other}", f"torch.zeros_like({name})", f"{name}.clone(memory_format=torch.contiguous_format)", f"{name}.nonzero()",
            f"torch.stack([{name}, {name}])", f"{name}.to(d)", f"{name}.detach().clone().cpu().to(d)",
        ]  # fmt: skip
        if not t.is_complex():
            choices += [
                f"{name}.relu()",
                f"torch.maximum({name}, {name}.flatten()[:1])",
                f"{name}.clamp(0, 2)",
            ]
        if t.dim():
            i, _ = self.dims(t)
            choices += [
                f"{name}.sum({i})",
                f"{name}.cumsum({i})",
                f"{name}.flip({i})",
                f"{name}.roll(1, {i})",
                f"torch.cat([{name}, {name}], {i})",
            ]
            if not t.is_complex():
                choices += [f"{name}.sort({i}, stable=True)[0]"]
            if t.shape[0]:
                indices = self.indices(t.shape[0])
                choices += [
                    f"{name}[torch.tensor({indices}, device=d)]",
                    f"{name}.index_select(0, torch.tensor({_counted(indices, t)}, device=d))",
                ]
            choices += [f"{name}[{name} != 1]"]
        self.say(f"{self.name()} = {self.one(*choices)}")

    def indices(self, size: int, unique: bool = False, least: int = 0) -> list[int]:
        return self.draw(
            st.lists(
                st.integers(-size, size - 1),
                min_size=least,
                max_size=4,
                unique_by=(lambda i: i % size) if unique else None,
            )
        )

    def target(
        self, fits: Callable[[torch.Tensor], bool] = lambda t: True
    ) -> tuple[str, torch.Tensor] | None:
        """A tensor to write to: elements that share a place are only written where eager refuses."""
        return self.some(lambda t: t.numel() <= MOST_ELEMENTS and (_distinct(t) or _expanded(t)) and fits(t))

    def write(self) -> None:
        if (chosen := self.target()) is None:
            return
        name, t = chosen
        other = self.partner(t, written=True)
        number = self.number(t)
        choices = [
            f"{name}.add_({other})", f"{name}.mul_({other})", f"{name}.sub_({other})", f"{name}.copy_({other})", f"{name}.fill_({number})",
            f"{name}.zero_()", f"{name} += {other}", f"{name} *= {number}", f"{name}[...] = {other}", f"{name}.neg_()", f"{name}.masked_fill_({name} == 1, {number})",
            f"{name}.data.add_({number})", f"{name}.detach().mul_({number})",
        ]  # fmt: skip
        if not t.is_complex():
            choices += [f"{name}.clamp_(0, 1)", f"{name}.abs_()", f"{name}.relu_()"]
        if t.is_floating_point():
            choices += [
                f"{name}.add_({other}, alpha=0.5)",
                f"{name}.lerp_({name}.clone(), 0.5)",
                f"{name}.addcmul_({name}.clone(), {name}.clone())",
            ]
        if self.chance(3):
            choices = [
                f"torch._foreach_add_([{name}], 1)",
                f"torch._foreach_mul_([{name}, {name}.clone()], 2)",
            ]
        line = self.one(*choices)
        if ".copy_(" in line and (
            not _is_name(other) or (other in self.tensors and _memory_shared(self.tensors[other], t))
        ):
            line = f"{name}.fill_({number})"
        self.say(self.without_gradient(t, line))

    def without_gradient(self, t: torch.Tensor, line: str) -> str:
        return (
            f"with torch.no_grad(): {line}" if t.requires_grad and t.is_leaf and not self.chance(4) else line
        )

    def write_part(self) -> None:
        if (chosen := self.target(lambda t: t.dim() > 0)) is None:
            return
        name, t = chosen
        part = f"{name}[{self.index(t)}]"
        value = self.number(t)
        try:
            seen = eval(part, {"torch": torch, name: t.detach()})
        except Exception:
            return
        other = self.partner(seen, written=True)
        line = self.one(
            f"{part} = {value}", f"{part} = {other}", f"{part} += {other}", f"{part}.mul_(2)", f"{part}.fill_({value})", f"{part} *= {value}",
            f"{part}.zero_()", f"{part}.transpose(0, -1).add_(1)", f"{part}.flatten()[:2].fill_({value})", f"{part} = torch.tensor({value})",
        )  # fmt: skip
        self.say(self.without_gradient(t, line))

    def write_indexed(self) -> None:
        if (chosen := self.target(lambda t: t.dim() > 0 and t.shape[0] > 0)) is None:
            return
        name, t = chosen
        i = self.integer(0, t.dim() - 1)
        size = t.shape[i]
        many, unique = self.indices(t.shape[0]), self.indices(t.shape[0], unique=True)
        value = self.number(t)
        dtype = f"torch.{str(t.dtype).removeprefix('torch.')}"
        # index_add_ and the like count from the start only; they look at the values when they run.
        plain, plain_once = (
            f"torch.tensor({_counted(many, t)}, dtype=torch.int64, device=d)",
            f"torch.tensor({_counted(unique, t)}, dtype=torch.int64, device=d)",
        )
        where, once = (
            f"torch.tensor({many}, dtype=torch.int64, device=d)",
            f"torch.tensor({unique}, dtype=torch.int64, device=d)",
        )
        choices = [
            f"{name}.index_put_(({where},), torch.tensor({value}, dtype={dtype}, device=d), accumulate=True)",
            f"{name}.index_put_(({where},), torch.ones({(len(many), *t.shape[1:])}, dtype={dtype}, device=d), accumulate=True)",
            f"{name}[{once}] = {value}",
            f"{name}[{once}] = torch.arange({len(unique)}, device=d).to({dtype}).reshape({(len(unique), *[1] * (t.dim() - 1))})",
            f"{name}[{where}] += {value}",
            f"{name}[{name} != 1] = {value}",
            f"{name}.index_add_(0, {plain}, torch.ones({(len(many), *t.shape[1:])}, dtype={dtype}, device=d))",
            f"{name}.index_fill_(0, {plain_once}, {value})",
            f"{name}.index_copy_(0, {plain_once}, torch.ones({(len(unique), *t.shape[1:])}, dtype={dtype}, device=d))",
            f"{name}.masked_scatter_({name} != 1, {name}.flip(0))",
            f"{name}[torch.tensor({unique}, dtype=torch.int64)] = {value}",
        ]
        if size:
            at = tuple(min(1, s) if k != i else 1 for k, s in enumerate(t.shape))
            position = f"torch.full({at}, {self.integer(0, size - 1)}, dtype=torch.int64, device=d)"
            choices += [
                f"{name}.scatter_({i}, {position}, {value})",
                f"{name}.scatter_add_({i}, {position}, torch.ones({at}, dtype={dtype}, device=d))",
            ]
        if t.dim() >= 2:
            choices += [f"{name}.fill_diagonal_({value})", f"{name}.diagonal().add_(1)"]
        self.say(self.without_gradient(t, self.one(*choices)))

    def rewire(self) -> None:
        if (chosen := self.some(lambda t: t.numel() <= MOST_ELEMENTS)) is None:
            return
        name, t = chosen
        capacity = t.untyped_storage().nbytes() // t.itemsize - t.storage_offset()
        other, u = self.some(lambda t: True) or chosen
        shape = self.shape(2)
        choices = [
            f"del {name}",
            f"{name}.squeeze_()",
            f"{name}.unsqueeze_(0)",
            f"{name}.detach_()",
            f"{name}, {other} = {other}, {name}",
        ]
        if t.dim():
            choices += [f"{name}.transpose_(0, -1)", f"{name}.swapaxes_(0, -1)"]
        if t.requires_grad and t._is_view():
            pass
        elif torch.Size(shape).numel() <= capacity:
            choices += [f"{name}.resize_({shape})", f"{name}.resize_as_(torch.zeros({shape}, device=d))"] * 2
        else:
            # What was there stays, the rest is anything: all of the tensor is written before it is read.
            choices += [f"{name}.resize_({shape}).zero_()", f"{name}.detach().resize_({shape}).fill_(1)"]
        # A view that wants a gradient is made again from its base after a write, which must give the same sizes.
        if u.dtype == t.dtype and not (t.requires_grad and t._is_view()):
            room = u.untyped_storage().nbytes() // u.itemsize
            choices += [
                f"{name}.set_({other})",
                f"{name}.data = {other}.data",
                f"{name}.data = {other}.detach() * 2",
            ]
            if room:
                choices += [
                    f"{name}.set_({other}.untyped_storage(), {self.integer(0, room - 1)}, (1,), (1,))"
                ]
                choices += [f"{name}.set_({other}.untyped_storage(), 0, ({room // 2}, 2), (2, 1))"]
            choices += [f"{name}.set_()"]
        self.say(self.one(*choices))

    def gradient(self) -> None:
        leaf = self.some(lambda t: t.requires_grad and t.is_leaf)
        if leaf is None:
            self.say(f"{self.name()} = (torch.arange(4, device=d) / 2).requires_grad_()")
            return
        name, _ = leaf
        result = self.some(lambda t: t.requires_grad and not t.is_leaf)
        choices = [
            f"{self.name()} = {name} * 2", f"({name} * {name}).sum().backward()", f"{name}.grad = None",
            f"with torch.no_grad(): {name}.sub_(0.5)", f"with torch.no_grad(): {name} -= {name}.grad", f"{name}.grad.zero_()",
            f"{name}.data.mul_(2)", f"{self.name()} = {name}.grad", f"{name}.grad.add_(1)",
        ]  # fmt: skip
        if result is not None:
            y, _ = result
            choices += [
                f"{y}.sum().backward(retain_graph=True)", f"{y}.sum().backward()", f"({y} * {y}).sum().backward(retain_graph=True)",
                f"seen([g is None for g in torch.autograd.grad({y}.sum(), [{name}], allow_unused=True, retain_graph=True)])",
                f"{y}.mul_({y}.detach())", f"{y}.detach().add_(1)", f"({y} ** 2).mul_(2).sum().backward(retain_graph=True)",
            ]  # fmt: skip
        self.say(self.one(*choices))

    def loop(self) -> None:
        if (chosen := self.target(lambda t: t.dim() > 0)) is None:
            return
        name, t = chosen
        line = self.one(
            f"for i in range(len({name})): {name}[i] = {name}[i - 1] + 1",
            f"for i in range(len({name})): {name}[i].mul_(i)",
            f"for i in range(1, len({name})): {name}[i:].add_({name}[i - 1].clone())",
            f"for row in {name}: row.add_(1)",
            f"for i in range(len({name})): {name}[-i:].fill_(i)",
            f"for i, row in enumerate({name}.unbind(-1)): row.copy_(row * 2 + i)",
        )
        self.say(self.without_gradient(t, line))

    def out(self) -> None:
        chosen, target = self.some(), self.target(lambda t: not t.requires_grad)
        if chosen is None or target is None:
            return
        (name, t), (to, o) = chosen, target
        if t.numel() > MOST_ELEMENTS or _memory_shared(t, o):  # eager resizes before it refuses
            return
        where = self.one(to, f"{to}.flatten()[:{self.integer(0, 3)}]")
        self.say(self.one(f"torch.add({name}, 1, out={where})", f"torch.mul({name}, 2, out={where})", f"torch.neg({name}, out={where})",
                          f"torch.cat([{name}.flatten()], out={where})", f"torch.sum({name}, 0, out={where})"))  # fmt: skip

    def read(self) -> None:
        if (chosen := self.some(lambda t: t.numel() <= MOST_ELEMENTS)) is not None:
            name, _ = chosen
            self.say(
                self.one(
                    f"seen({name}.tolist())",
                    f"seen({name}.sum().item())",
                    f"seen(bool(({name} == 1).any()))",
                    f"seen({name}.detach().cpu())",
                )
            )


def _counted(indices: list[int], t: torch.Tensor) -> list[int]:
    """The same indices of the first dimension, counted from its start."""
    return [i % t.shape[0] for i in indices]


def _is_name(expression: str) -> bool:
    return expression.split(".")[0] in NAMES


def _memory_shared(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _same_place(a: torch.Tensor, b: torch.Tensor) -> bool:
    return facts(a)[:4] == facts(b)[:4]


def _surely_refused(written: torch.Tensor, other: torch.Tensor) -> bool:
    """Eager looks for a partial overlap of dense tensors only; one element is copied onto itself on the device."""
    return (
        written.numel() > 1
        and all(t.is_contiguous() for t in (written, other))
        and written.numel() == other.numel()
    )


def _expanded(t: torch.Tensor) -> bool:
    """What eager refuses to write: it looks for strides of 0 only."""
    return any(size > 1 and stride == 0 for size, stride in zip(t.shape, t.stride(), strict=True))


def _distinct(t: torch.Tensor) -> bool:
    """Whether no two elements share their place."""
    if t.numel() < 2:
        return True
    where = torch.arange(t.untyped_storage().nbytes() // t.itemsize + 1)
    return where.as_strided(t.shape, t.stride(), t.storage_offset()).unique().numel() == t.numel()


@st.composite
def programs(draw: Callable[[st.SearchStrategy[Any]], Any]) -> list[str]:
    """Programs of up to some 30 lines."""
    return _Writer(draw).program()

"""Numbers whose origin a recording knows: what Python computes with them is computed again by each replay."""

import math
from typing import Any

import torch

_Other = (int, float)


class _Node:
    """What PyTorch's C++ side sees of a followed number."""

    def __init__(self, recorded: Any, followed: tuple[int, float]) -> None:
        self._recorded = recorded
        self.followed = followed  # the register and the value; read by the recording

    def guard_float(self, file: str, line: int) -> float:
        """The number as a plain one: the replay holds only while it stays the same."""
        if self._recorded.recording:
            self._recorded.same(*self.followed)
        return self.followed[1]

    def is_float(self) -> bool:
        return True

    def is_int(self) -> bool:
        return False

    def is_bool(self) -> bool:
        return False

    def is_symbolic(self) -> bool:
        return True

    def is_nested_int(self) -> bool:
        return False

    def is_constant(self) -> bool:
        return False

    def has_hint(self) -> bool:
        return True

    def str(self) -> str:
        return repr(self.followed[1])


def _binary(kind: str, plain: Any, reflected: bool = False) -> Any:
    def method(self: "FollowedNumber", other: Any) -> Any:
        if not isinstance(other, _Other):
            return NotImplemented
        mine, theirs = self.plain(), float(other) if type(other) is not FollowedNumber else other.plain()
        value = plain(theirs, mine) if reflected else plain(mine, theirs)
        recorded = self.node._recorded
        if not recorded.recording:
            return value
        if type(value) is not float:  # a negative number to a broken power is complex
            float(self)
            return value
        a, b = self.node.followed[0], _register(recorded, other)
        return FollowedNumber(
            recorded, recorded.step(kind, b, a) if reflected else recorded.step(kind, a, b), value
        )

    return method


def _comparison(kind: str, plain: Any, swapped: bool = False, negated: bool = False) -> Any:
    def method(self: "FollowedNumber", other: Any) -> Any:
        if not isinstance(other, _Other):
            return NotImplemented
        value = plain(self.plain(), float(other) if type(other) is not FollowedNumber else other.plain())
        recorded = self.node._recorded
        if recorded.recording:
            a, b = self.node.followed[0], _register(recorded, other)
            recorded.compared(kind, *((b, a) if swapped else (a, b)), value is not negated)
        return value

    return method


def _plainly(name: str) -> Any:
    def method(self: "FollowedNumber", *args: Any) -> Any:
        return getattr(float(self), name)(*args)

    return method


def _register(recorded: Any, number: Any) -> int:
    if type(number) is FollowedNumber:
        return number.node.followed[0]
    return recorded.step("constant", value=float(number))


class FollowedNumber(torch.SymFloat):
    """A float in all that Python code sees of it; PyTorch's operators take it as a symbolic number.

    Arithmetic gives followed numbers. A comparison gives a bool, and each
    replay checks that it comes out the same. Any other use gives a plain
    number, and each replay checks that the number is the same.
    """

    def __init__(self, recorded: Any, at: int, value: float) -> None:
        super().__init__(_Node(recorded, (at, value)))

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return float

    def plain(self) -> float:
        """Its value, which nothing checks."""
        return self.node.followed[1]

    def __float__(self) -> float:
        return self.node.guard_float("", 0)

    def __bool__(self) -> bool:
        return self != 0.0

    def __neg__(self) -> Any:
        return self._unary("neg", -self.plain())

    def __abs__(self) -> Any:
        return self._unary("abs", math.fabs(self.plain()))

    def __pos__(self) -> Any:
        return self

    def _unary(self, kind: str, value: float) -> Any:
        recorded = self.node._recorded
        if not recorded.recording:
            return value
        return FollowedNumber(recorded, recorded.step(kind, self.node.followed[0]), value)

    __add__ = _binary("add", float.__add__)
    __radd__ = _binary("add", float.__add__, reflected=True)
    __sub__ = _binary("sub", float.__sub__)
    __rsub__ = _binary("sub", float.__sub__, reflected=True)
    __mul__ = _binary("mul", float.__mul__)
    __rmul__ = _binary("mul", float.__mul__, reflected=True)
    __truediv__ = _binary("truediv", float.__truediv__)
    __rtruediv__ = _binary("truediv", float.__truediv__, reflected=True)
    __pow__ = _binary("pow", float.__pow__)
    __rpow__ = _binary("pow", float.__pow__, reflected=True)
    __lt__ = _comparison("lt", float.__lt__)
    __le__ = _comparison("le", float.__le__)
    __gt__ = _comparison("lt", float.__gt__, swapped=True)
    __ge__ = _comparison("le", float.__ge__, swapped=True)
    __eq__ = _comparison("eq", float.__eq__)
    __ne__ = _comparison("eq", float.__ne__, negated=True)


for _name in (
    "__int__ __trunc__ __floor__ __ceil__ __round__ __floordiv__ __rfloordiv__ __mod__ __rmod__ __divmod__ __rdivmod__ "
    "__hash__ __repr__ __str__ __format__ is_integer hex as_integer_ratio conjugate __getnewargs__"
).split():
    setattr(FollowedNumber, _name, _plainly(_name))

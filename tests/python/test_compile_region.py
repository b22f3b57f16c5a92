"""`compile()`: one graph with a cut at its end, its limits, and its three uses."""

import pytest
import torch

import torch_spool
from helpers import executions, same
from torch_spool import _C
from torch_spool.debug import metrics


def ready(*shape: int) -> torch.Tensor:
    x = torch.arange(float(torch.Size(shape).numel())).view(shape).to(torch_spool.device())
    torch_spool.sync(wait=True)
    metrics.clear_all()
    return x


def test_the_end_of_a_region_is_a_cut_so_that_what_follows_is_in_another_graph():
    x = ready(3)
    double = torch_spool.compile(lambda t: t * 2)
    y = double(x)
    assert _C.tape_length() == 0
    assert executions() == 1
    z = y + 1
    torch_spool.sync()
    assert executions() == 2
    same(z, torch.arange(3.0) * 2 + 1)


def test_a_tensor_made_before_the_call_is_an_input_of_the_region():
    x = ready(3)
    seen = []

    @torch_spool.compile
    def f(t: torch.Tensor) -> torch.Tensor:
        assert _C.tape_length() == 0, "what was pending is launched at entry"
        out = t * 3
        seen.append(torch_spool.graph_text(out))
        return out

    before = x - 1
    y = f(before)
    assert executions() == 2
    assert "aten::mul" in seen[0] and "aten::sub" not in seen[0]
    same(before, torch.arange(3.0) - 1)
    same(y, (torch.arange(3.0) - 1) * 3)


def test_decorator_wrapper_and_context_manager_are_the_same_region():
    x = ready(4)

    @torch_spool.compile
    def bare(t):
        """Add one."""
        return t + 1

    @torch_spool.compile(full_graph=True, name="named")
    def with_options(t):
        return t + 1

    wrapped = torch_spool.compile(torch.nn.Identity())
    assert bare.__name__ == "bare" and bare.__doc__ == "Add one."
    same(bare(x), torch.arange(4.0) + 1)
    same(with_options(x), torch.arange(4.0) + 1)
    same(wrapped(x), torch.arange(4.0))
    with torch_spool.compile():
        y = x + 1
    assert _C.tape_length() == 0
    same(y, torch.arange(4.0) + 1)


def test_a_context_manager_can_be_kept_and_entered_again_also_inside_itself():
    x = ready(2)
    region = torch_spool.compile(name="again")
    for _ in range(2):
        with region:
            x.add_(1)
            with region:
                x.mul_(2)
    same(x, ((torch.arange(2.0) + 1) * 2 + 1) * 2)


def test_keyword_arguments_and_results_pass_through():
    x = ready(2)

    @torch_spool.compile
    def f(t, *, by=1.0):
        return {"out": t * by, "by": by}

    result = f(x, by=4.0)
    assert result["by"] == 4.0
    same(result["out"], torch.arange(2.0) * 4)


@pytest.mark.usefixtures("exact")
def test_a_training_step_compiles_once_and_equals_eager():
    def program(dev, wrap):
        torch.manual_seed(0)
        model = torch.nn.Linear(5, 3).to(dev)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)

        def train(x, y):
            optimiser.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimiser.step()
            return loss

        train = wrap(train)
        return [train(torch.ones(4, 5).to(dev) * i, torch.ones(4, 3).to(dev)) for i in range(6)]

    got = program(
        torch_spool.device(),
        lambda f: torch_spool.compile(f, full_graph=True, num_different_graphs_allowed=2),
    )
    for g, w in zip(got, program("cpu", lambda f: f)):
        same(g, w)


BREAKS = {
    "item": lambda t: t.sum().item(),
    "cpu": lambda t: t.cpu(),
    "bool": lambda t: bool(t.sum() > 0),
    "print": repr,
    "nonzero": lambda t: t.nonzero(),
    "sync": lambda t: torch_spool.sync(),
    "barrier": lambda t: torch_spool._barrier(),
}


@pytest.mark.parametrize("name", BREAKS)
def test_full_graph_turns_a_graph_break_into_an_error_that_names_the_line(name):
    x = ready(3)

    def f(t):
        u = t + 1
        BREAKS[name](u)
        return u

    with pytest.raises(RuntimeError) as caught:
        torch_spool.compile(f, full_graph=True)(x)
    message = str(caught.value)
    assert message.startswith("["), message
    assert "full_graph" in message
    assert "test_compile_region.py:" in message
    same(torch_spool.compile(lambda t: t + 1, full_graph=True)(x), torch.arange(3.0) + 1)


def test_without_full_graph_a_read_breaks_the_graph_and_is_counted():
    x = ready(3)

    @torch_spool.compile
    def f(t):
        total = t.sum().item()
        return t * total

    same(f(x), torch.arange(3.0) * 3)
    assert metrics.counter_value("GraphBreak") == 1
    assert executions() == 2


def test_a_further_graph_than_allowed_is_an_error_and_the_old_one_still_works():
    f = torch_spool.compile(
        lambda t: t * 2, full_graph=True, name="one shape", num_different_graphs_allowed=1
    )
    small, large = ready(3), ready(4)
    for _ in range(3):
        f(small)
    with pytest.raises(RuntimeError, match="one shape"):
        f(large)
    same(f(small), torch.arange(3.0) * 2)


def test_numbers_make_no_different_graphs():
    f = torch_spool.compile(lambda t, by: t * by + by, num_different_graphs_allowed=1)
    x = ready(5)
    for by in (0.0, 0.5, 1.0, 2.0, -3.25):
        same(f(x, by), torch.arange(5.0) * by + by)


def test_the_limit_counts_over_all_passes_through_one_with_statement():
    def run(t):
        with torch_spool.compile(num_different_graphs_allowed=2):
            return t + 1

    run(ready(6))
    run(ready(7))
    run(ready(6))
    with pytest.raises(RuntimeError, match="num_different_graphs_allowed"):
        run(ready(8))


def test_an_exception_passes_through_as_the_same_object_and_what_was_before_it_runs():
    x = ready(2)
    error = LookupError("user's")

    @torch_spool.compile
    def f(t):
        t.add_(1)
        raise error

    with pytest.raises(LookupError) as caught:
        f(x)
    assert caught.value is error and not getattr(error, "__notes__", [])
    with pytest.raises(LookupError) as caught:
        with torch_spool.compile(full_graph=True):
            x.mul_(2)
            raise error
    assert caught.value is error
    assert _C.tape_length() == 0
    same(x, (torch.arange(2.0) + 1) * 2)


def test_a_region_may_stand_in_a_step_and_a_step_in_a_region():
    x = ready(2)
    f = torch_spool.compile(lambda t: t + 1)
    with torch_spool.step():
        y = f(x) * 2
    with torch_spool.compile():
        with torch_spool.step():
            y = y - 1
        y = y * 3
    same(y, ((torch.arange(2.0) + 1) * 2 - 1) * 3)


def test_a_region_that_records_nothing_is_no_graph():
    ready(2)
    f = torch_spool.compile(lambda: None, full_graph=True, num_different_graphs_allowed=1)
    f()
    f()
    assert executions() == 0


@pytest.mark.parametrize("f", [3, "name", True])
def test_what_cannot_be_called_is_refused(f):
    with pytest.raises(TypeError, match=r"^\[compile\] expected a function"):
        torch_spool.compile(f)


@pytest.mark.parametrize("limit", [0, -1, True, 1.0, "2"])
def test_a_limit_below_one_is_refused(limit):
    with pytest.raises(ValueError, match=r"^\[compile\] expected num_different_graphs_allowed"):
        torch_spool.compile(num_different_graphs_allowed=limit)


def test_a_generator_function_is_refused():
    def f():
        yield 1

    with pytest.raises(TypeError, match=r"^\[compile\] expected a plain function"):
        torch_spool.compile(f)
    with pytest.raises(TypeError, match=r"^\[compile\] expected a plain function"):
        torch_spool.compile()(f)

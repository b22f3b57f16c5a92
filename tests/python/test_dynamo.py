"""The bridge to torch.compile: graphs are extracted without running, then launched on the buffers of their arguments."""

import operator
import threading

import pytest
import torch
from torch import fx, nn

import torch_spool
from helpers import as_eager, close_all, compiles, count, executions, run_program, same, same_all
from torch_spool import _C
from torch_spool.debug import metrics
from torch_spool.dynamo import extract_compiled_graph


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Block(nn.Module):
    """Two convolutions with a way around them, as a residual network has."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.around = nn.Sequential()
        if stride != 1 or width_in != width:
            self.around = nn.Sequential(
                nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x):
        return torch.relu(self.norm2(self.second(torch.relu(self.norm1(self.first(x))))) + self.around(x))


def residual_net() -> nn.Module:
    """A ResNet-18, an eighth as wide."""
    torch.manual_seed(0)
    stages = [
        (8, 8, 1),
        (8, 8, 1),
        (8, 16, 2),
        (16, 16, 1),
        (16, 32, 2),
        (32, 32, 1),
        (32, 64, 2),
        (64, 64, 1),
    ]
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        *[Block(*one) for one in stages], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def traced(f) -> fx.GraphModule:
    return fx.symbolic_trace(f)


def ready(*tensors: torch.Tensor) -> list[torch.Tensor]:
    moved = [tensor.to(torch_spool.device()) for tensor in tensors]
    torch_spool.sync(wait=True)
    metrics.clear_all()
    return moved


def aliases() -> float:
    torch_spool.wait_device_ops()
    data = metrics.metric_data("InputOutputAliasCount")
    return data[1] if data else 0


# --- extraction -------------------------------------------------------------------------------------------------------


def test_extracting_a_large_model_runs_nothing_leaves_nothing_pending_and_changes_nothing(dev):
    net = residual_net().to(dev)
    (x,) = ready(torch.rand(2, 3, 16, 16))
    before = {name: value.cpu() for name, value in net.state_dict().items()}
    metrics.clear_all()
    run = extract_compiled_graph(traced(net), (x,))
    assert executions() == 0 and compiles() == 1
    assert _C.tape_length() == 0
    for name, value in net.state_dict().items():
        same(value, before[name], name)
    run(x)
    assert executions() == 1 and compiles() == 1
    assert not torch.equal(net[1].running_mean.cpu(), before["1.running_mean"]), (
        "now the statistics are updated"
    )


def test_extracting_a_graph_that_updates_its_inputs_changes_none_of_them(dev):
    def f(a, b):
        a.mul_(3)
        b[1:].add_(a[1:])
        return a + b

    a, b = ready(torch.ones(3), torch.full((3,), 2.0))
    run = extract_compiled_graph(traced(f), (a, b))
    assert executions() == 0 and _C.tape_length() == 0
    same(a, torch.ones(3))
    same(b, torch.full((3,), 2.0))
    same(run(a, b), torch.tensor([5.0, 8.0, 8.0]))
    same(a, torch.full((3,), 3.0))
    same(b, torch.tensor([2.0, 5.0, 5.0]))


def test_a_call_records_nothing(dev):
    (x,) = ready(torch.rand(4))
    run = extract_compiled_graph(traced(lambda t: (t * 2).sin() + 1), (x,))
    before = _C.recorder_stats()["ops"]
    results = [run(x) for _ in range(5)]
    assert _C.recorder_stats()["ops"] == before and _C.tape_length() == 0
    assert executions() == 5 and compiles() == 1
    same_all(results, [(x.cpu() * 2).sin() + 1] * 5)


def test_pending_tensors_that_the_graph_keeps_are_launched_first_and_once(dev):
    net = nn.Linear(3, 2).to(dev)
    x = torch.ones(1, 3, device=dev)
    torch_spool.sync(wait=True)
    with torch.no_grad():
        net.weight.mul_(2)
        net.bias.add_(1)
    metrics.clear_all()
    run = extract_compiled_graph(traced(net), (x,))
    assert executions() == 1, "what was pending for the parameters"
    assert _C.tape_length() == 0
    want = nn.functional.linear(torch.ones(1, 3), net.weight.detach().cpu(), net.bias.detach().cpu())
    for _ in range(3):
        same(run(x), want)
    assert executions() == 4


def test_arguments_that_are_pending_are_launched_by_the_call_not_by_the_extraction(dev):
    (x,) = ready(torch.ones(3))
    y = x + 1
    run = extract_compiled_graph(traced(lambda t: t * 2), (y,))
    assert executions() == 0 and _C.tape_length() == 1
    same(run(y), torch.full((3,), 4.0))
    assert executions() == 2


def test_what_another_thread_records_meanwhile_stays_on_the_devices_tape(dev):
    (x, other) = ready(torch.ones(3), torch.full((3,), 5.0))
    made = []

    def elsewhere(t):
        thread = threading.Thread(target=lambda: made.append(other * 2))
        thread.start()
        thread.join()
        return t + 1

    graph = fx.Graph()
    graph.output(graph.call_function(elsewhere, (graph.placeholder("t"),)))
    run = extract_compiled_graph(fx.GraphModule({}, graph), (x,))
    assert len(made) == 1 and _C.tape_length() == 1 and executions() == 0
    same(run(x), torch.full((3,), 2.0))
    same(made[0], torch.full((3,), 10.0))


def test_an_error_of_the_graph_comes_through_and_the_device_goes_on(dev):
    a, b = ready(torch.ones(2, 3), torch.ones(4, 5))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        extract_compiled_graph(traced(lambda p, q: p @ q), (a, b))
    assert _C.tape_length() == 0
    same(a + 1, torch.full((2, 3), 2.0))


def test_an_extraction_leaves_no_storage_behind_whether_it_succeeds_or_not(dev):
    (x,) = ready(torch.ones(3))
    before = _C.live_slots()
    run = extract_compiled_graph(traced(lambda t: (t * 2).exp()), (x,))
    refused = extract_compiled_graph(traced(lambda t: t.resize_(2) * 2), (x,))
    split = extract_compiled_graph(traced(lambda t: (t * 2).nonzero() + 1), (x,))
    assert _C.live_slots() == before and callable(run) and callable(refused) and callable(split)


def test_extracting_needs_an_fx_graph():
    with pytest.raises(
        TypeError, match=r"\[extract_compiled_graph\] expected a torch.fx.GraphModule, got function"
    ):
        extract_compiled_graph(lambda t: t, ())


# --- buffers ----------------------------------------------------------------------------------------------------------


def test_kept_and_held_buffers_stay_readable_over_runs_in_any_order(dev):
    net = nn.Linear(3, 3).to(dev)
    (x, other) = ready(torch.rand(2, 3), torch.rand(2, 3))
    weight, bias = net.weight.detach().cpu(), net.bias.detach().cpu()
    held, alias = x.detach(), net.weight.detach()
    runs = [extract_compiled_graph(traced(net), (x,)) for _ in range(2)]
    for i in (0, 1, 1, 0, 1):
        same(runs[i](x), nn.functional.linear(held.cpu(), weight, bias))
        same(runs[1 - i](other), nn.functional.linear(other.cpu(), weight, bias))
    same(alias, weight)
    assert aliases() == 0


def test_kept_tensors_that_the_graph_updates_survive_a_run_and_another_run(dev):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x):
            self.total.add_(x)
            return x + self.total

    module = traced(Counts().to(dev))
    (x,) = ready(torch.ones(3))
    run = extract_compiled_graph(module, (x,))
    again = extract_compiled_graph(module, (x,))
    same(module.total, torch.zeros(3))
    metrics.clear_all()
    for i in range(1, 7):
        same((run if i % 3 else again)(x), torch.full((3,), 1.0 + i))
        same(module.total, torch.full((3,), float(i)))
    assert executions() == 6
    assert aliases() == 6, "nobody else held the buffer, so each run took it over"


def test_what_was_recorded_before_an_update_sees_the_old_value(dev):
    (value,) = ready(torch.full((3,), 4.0))
    run = extract_compiled_graph(traced(lambda a: a.add_(1)), (value,))
    alias = value.detach()  # another tensor, the same storage: sees the update, as in eager
    earlier = value * 10  # recorded before the call: sees the old value
    assert run(value) is value
    same(earlier, torch.full((3,), 40.0))
    same(value, torch.full((3,), 5.0))
    same(alias, torch.full((3,), 5.0))


@pytest.mark.usefixtures("exact")
def test_a_residual_net_with_kept_statistics_runs_and_runs_again_as_eager_does(dev):
    net = residual_net()
    images = [torch.rand(2, 3, 16, 16) for _ in range(3)]
    lazy = residual_net().to(dev)
    moved = ready(*images)
    run = extract_compiled_graph(traced(lazy), (moved[0],))
    metrics.clear_all()
    for image, on_device in zip(images, moved, strict=True):
        same(run(on_device), net(image))
    updated = sum(1 for name, _ in net.named_buffers())
    assert executions() == 3 and aliases() == 3 * updated
    for (name, got), want in zip(lazy.state_dict().items(), net.state_dict().values(), strict=True):
        same(got, want, name)


# --- outputs and inputs -----------------------------------------------------------------------------------------------


def test_outputs_may_be_inputs_duplicates_views_constants_none_and_numbers(dev):
    class Many(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("constant", torch.arange(3.0))

        def forward(self, x, n):
            y = x + n
            return {"y": (y, y, y[1:]), "x": [x, x.view(2, 2), None, n], "c": self.constant, "five": 5}

    module = traced(Many().to(dev))
    (x,) = ready(torch.ones(4))
    run = extract_compiled_graph(module, (x, 3))
    for _ in range(2):
        got = run(x, 3)
        y, same_y, tail = got["y"]
        assert y is same_y and tail.shape == (3,)
        assert got["x"][0] is x and got["x"][2:] == [None, 3] and got["five"] == 5
        assert got["c"] is module.constant
        y.zero_()
        same(tail, torch.zeros(3))
        got["x"][1].add_(1)
    same(x, torch.full((4,), 3.0))
    with_other_number = run(x, 4)
    same(with_other_number["y"][0], torch.full((4,), 7.0))
    assert with_other_number["x"][3] == 4


def test_each_call_makes_new_outputs(dev):
    (x,) = ready(torch.ones(3))
    run = extract_compiled_graph(traced(lambda t: t * 2), (x,))
    first, second = run(x), run(x)
    first.add_(1)
    same(second, torch.full((3,), 2.0))
    same(first, torch.full((3,), 3.0))


def test_inputs_that_share_memory_stay_so_and_another_way_of_sharing_is_another_graph(dev):
    def f(a, b):
        a.add_(1)
        return a + b

    def program(d):
        base = torch.zeros(4, device=d)
        run = extract_compiled_graph(traced(f), (base[:2], base[2:])) if d.type == "xla" else f
        alone = torch.zeros(2, device=d)
        out = [run(base[:2], base[2:]), run(base[:2], base[:2]), run(alone, alone), run(alone, base[1:3])]
        return [*out, base, alone]

    as_eager(program, dev)


def test_numbers_that_are_tensors_of_the_cpu_are_read_at_each_call(dev):
    (x,) = ready(torch.ones(3))
    rate = torch.tensor(0.5)
    run = extract_compiled_graph(traced(lambda t, r: t * r), (x, rate))
    same(run(x, rate), torch.full((3,), 0.5))
    rate.fill_(0.25)
    same(run(x, rate), torch.full((3,), 0.25))
    same(run(x, torch.tensor(4.0)), torch.full((3,), 4.0))
    assert compiles() == 1 and count("BridgeFallback") == 0


def test_results_that_are_on_the_cpu_stay_there(dev):
    (x,) = ready(torch.ones(3))
    number = torch.tensor(2.0)

    def f(t, n):
        n.add_(1)
        return t * n, n * n, n

    run = extract_compiled_graph(traced(f), (x, number))
    assert number.item() == 2
    for i in (3.0, 4.0):
        on_device, square, back = run(x, number)
        same(on_device, torch.full((3,), i))
        assert square.device.type == "cpu" and square.item() == i * i
        assert back is number and number.item() == i


def test_other_shapes_are_compiled_when_they_come_and_their_number_is_bounded(dev):
    (x,) = ready(torch.ones(2))
    run = extract_compiled_graph(traced(lambda t: t.cumsum(0) * 2), (x,))
    for _ in range(2):
        for n in range(2, 14):
            same(run(torch.ones(n, device=dev)), torch.arange(1.0, n + 1) * 2)
    assert count("BridgeFallback") == 2 * (12 - 8)


# --- what can't be in a graph -----------------------------------------------------------------------------------------


def test_random_numbers_split_the_graph_and_are_eagers(dev):
    def f(t):
        return nn.functional.dropout((t * 3).sin(), 0.4).cos() + torch.rand_like(t)

    def program(d):
        run = torch.compile(f, backend="openxla") if d.type == "xla" else f
        t = torch.arange(20.0, device=d)
        return [run(t), run(t + 1), torch.rand(3).to(d)]

    as_eager(program, dev)
    assert count("BridgeSplit") == 4 and count("BridgeFallback") == 0


def test_an_abandoned_extraction_draws_no_random_number(dev):
    (x,) = ready(torch.ones(3))
    graph = fx.Graph()
    t = graph.placeholder("t")
    drawn = graph.call_function(torch.rand, (3,))
    graph.output(graph.call_function(operator.add, (t, graph.call_method("to", (drawn, dev)))))
    torch.manual_seed(3)
    run = extract_compiled_graph(fx.GraphModule({}, graph), (x,))
    want = [torch.rand(3) + 1 for _ in range(2)]
    torch.manual_seed(3)
    same_all([run(x), run(x)], want)


def test_an_op_whose_shape_depends_on_data_splits_the_graph(dev):
    def f(t, u):
        u.mul_(2)
        picked = t[(t * 2 > u).nonzero().flatten()]
        return picked.sum() + u, picked * 2

    a, b = ready(torch.arange(6.0), torch.full((6,), 2.0))
    run = extract_compiled_graph(traced(f), (a, b))
    assert executions() == 0
    eager_a, eager_b = torch.arange(6.0), torch.full((6,), 2.0)
    for _ in range(3):
        same_all(run(a, b), f(eager_a, eager_b))
    same(b, eager_b)
    assert count("BridgeSplit") == 3 and count("aten::nonzero") == 3 and count("BridgeFallback") == 0


def test_a_graph_that_resizes_an_input_is_recorded(dev):
    (x,) = ready(torch.ones(3))
    run = extract_compiled_graph(traced(lambda t: t.resize_(2) * 2), (x,))
    assert x.shape == (3,)
    same(run(x), torch.full((2,), 2.0))
    assert x.shape == (2,) and count("BridgeFallback") == 1


# --- torch.compile ----------------------------------------------------------------------------------------------------


def training(backend, *, steps=4, compile_optimiser=False, dynamic=None, batch=lambda i: 3):
    def program(d):
        lazy = d.type == "xla"
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8), nn.LayerNorm(8), nn.GELU(),
            nn.Linear(8, 5),
        ).to(d)  # fmt: skip
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        model = torch.compile(net, backend=backend, dynamic=dynamic) if lazy else net
        step = (
            torch.compile(optimiser.step, backend=backend) if lazy and compile_optimiser else optimiser.step
        )
        losses = []
        for i in range(steps):
            x, target = torch.rand(batch(i), 2, 6, 6), torch.randint(5, (batch(i),))
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(x.to(d)), target.to(d))
            loss.backward()
            step()
            losses.append(loss.detach())
            if lazy:
                torch_spool.sync()
        return [*losses, *net.parameters(), *net.buffers()]

    return program


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("backend", ["openxla", "spool"])
def test_training_equals_eager_to_the_last_bit(dev, backend):
    as_eager(training(backend), dev)
    assert count("BridgeFallback") == count("BridgeSplit") == 0
    assert aliases() > 0


@pytest.mark.usefixtures("exact")
@pytest.mark.filterwarnings("ignore:Profiler record function")
def test_training_with_a_compiled_optimiser_equals_eager_to_the_last_bit(dev):
    as_eager(training("openxla", compile_optimiser=True), dev)
    assert count("BridgeFallback") == 0


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("dynamic", [None, False, True])
def test_training_on_batches_of_changing_size_equals_eager(dev, dynamic):
    as_eager(training("openxla", steps=6, dynamic=dynamic, batch=lambda i: (3, 5, 2)[i % 3]), dev)
    known = compiles()
    metrics.clear_all()
    as_eager(training("openxla", steps=6, dynamic=dynamic, batch=lambda i: (3, 5, 2)[i % 3]), dev)
    assert known > 0 and count("BridgeFallback") == 0


@pytest.mark.usefixtures("exact")
def test_a_compiled_residual_net_trains_as_eager_does(dev):
    def program(d):
        net = residual_net().to(d)
        model = torch.compile(net, backend="openxla") if d.type == "xla" else net
        out = []
        for _ in range(2):
            loss = model(torch.rand(2, 3, 16, 16).to(d)).square().mean()
            loss.backward()
            out.append(loss.detach())
        return [*out, *(p.grad for p in net.parameters()), *net.buffers()]

    as_eager(program, dev, compare=close_all)
    assert count("BridgeFallback") == count("BridgeSplit") == 0


def test_graph_breaks_give_eagers_results(dev):
    def f(t):
        t = t * 2
        if t.sum() > 10:
            t = t + 1
        print(end="")
        return t.sin()

    def program(d):
        run = torch.compile(f, backend="openxla") if d.type == "xla" else f
        return [run(torch.full((4,), n, device=d)) for n in (1.0, 2.0, 3.0)]

    as_eager(program, dev)


@pytest.mark.usefixtures("exact")
def test_compiled_functions_mix_with_lazy_tensors_and_with_regions(dev):
    def f(t, state):
        state.add_(t.mean())
        return t * state

    def program(d):
        lazy = d.type == "xla"
        by_dynamo = torch.compile(f, backend="openxla") if lazy else f
        by_region = torch_spool.compile(f) if lazy else f
        whole = torch_spool.compile(lambda t, s: by_dynamo(t + 1, s) * 2, full_graph=True) if lazy else None
        t, state, out = torch.rand(5).to(d), torch.zeros((), device=d), []
        for i in range(4):
            t = t + 1
            t = by_dynamo(t, state)
            t = by_region(t, state).sin()
            state.mul_(0.5)
            t = whole(t, state) if lazy else by_dynamo(t + 1, state) * 2
            if lazy and i == 1:
                torch_spool.sync()
            out += [t, state.clone()]
        return out

    as_eager(program, dev)


def test_a_compiled_function_in_a_region_that_is_one_graph_is_part_of_it(dev):
    (x,) = ready(torch.ones(3))
    inner = torch.compile(lambda t: t * 2, backend="openxla")
    inner(x)
    outer = torch_spool.compile(lambda t: inner(t + 1) + 1, full_graph=True)
    torch_spool.sync(wait=True)
    metrics.clear_all()
    same(outer(x), torch.full((3,), 5.0))
    assert executions() == 1


def test_writes_through_two_views_of_one_storage_reach_it(dev):
    def write(keys, values, slots, new):
        keys.flatten(0, 1).index_copy_(0, slots, new)
        values.flatten(0, 1).index_copy_(0, slots, new * 2)

    def program(d):
        run = torch.compile(write, backend="openxla") if d.type == "xla" else write
        cache = torch.zeros(2, 2, 3, 4, device=d)
        keys, values = cache
        for i in range(3):
            run(keys, values, torch.tensor([i, 5 - i], device=d), torch.full((2, 4), i + 1.0, device=d))
            keys[0, 0] -= 1
        return [cache, keys, values]

    as_eager(program, dev)


def test_importing_the_package_does_not_load_dynamo_and_order_does_not_matter():
    program = (
        "import sys, torch\n"
        "{first}\n"
        "import torch_spool\n"
        "{then}\n"
        "f = torch.compile(lambda t: t + 1, backend='openxla')\n"
        "g = torch.compile(lambda t: t * 2, backend='spool')\n"
        "print(g(f(torch.ones(2, device='xla'))).tolist())\n"
    )
    run = run_program(
        program.format(first="", then="assert not any(m.startswith('torch._dynamo') for m in sys.modules)")
    )
    assert run.stdout == "[4.0, 4.0]\n"
    loaded = "torch.compile(lambda t: t, backend='eager')(torch.ones(1)); torch._dynamo.list_backends()"
    assert run_program(program.format(first=loaded, then="")).stdout == "[4.0, 4.0]\n"

"""What people have tried on lazy tensors and found wrong: each behaviour is here, compared with eager.

Functions that `torch.compile` compiled, among them one that writes through two views of one cache, are in test_dynamo.py.
"""

import gc
import io

import pytest
import torch
from torch import nn

import torch_spool
from helpers import compiles, run_program, same, same_all


def on_both(program, dev):
    torch.manual_seed(0)
    got = program(dev)
    torch.manual_seed(0)
    same_all(got, program(torch.device("cpu")))


def test_views_taken_before_a_cut_share_memory_with_their_base_after_it(dev):
    def program(d):
        x = torch.full((4, 3), 0.5, device=d)
        line, block = x.reshape(12), x[1:3, 1:]
        torch_spool.sync(wait=True)
        line[7] = 3.0
        block.mul_(4.0)
        torch_spool.sync(wait=True)
        x[3, 2] = -2.0
        line[9:].sub_(1.0)
        return [x, line, block]

    on_both(program, dev)


def test_as_strided_of_a_slice_starts_at_the_slices_place_and_gradients_come_back(dev):
    def program(d):
        leaf = torch.arange(12.0, device=d).requires_grad_()
        y = leaf * 3
        tail = y[3:]
        parts = [
            tail.unsqueeze(0),
            tail.as_strided((3, 2), (2, 1)),
            tail[2:].as_strided((2,), (3,)),
            y[7:].as_strided((5,), (1,), 1),
            y.view(3, 4)[1:, 2:].as_strided((2, 2), (1, 4)),
            y[4:9].unfold(0, 3, 1),
        ]
        total = sum((part * part).sum() * (i + 1) for i, part in enumerate(parts))
        total.backward()
        return [*parts, leaf.grad]

    on_both(program, dev)


def test_dimensions_of_size_zero_go_through_every_kind_of_op(dev):
    def program(d):
        none = torch.empty(0, dtype=torch.int64, device=d)
        e = torch.rand(3, 0, 2).to(d)
        rows = torch.ones(4, device=d)
        rows.index_add_(0, none, torch.empty(0, device=d))
        return [
            e.gather(1, torch.empty(3, 0, 2, dtype=torch.int64, device=d)),
            e.index_select(1, none), torch.ones(2, 5, device=d)[none], e.sum(1), e.prod(1), e.mean(1), e.mean(0),
            e.softmax(1), torch.cat([e, e], 1), e.permute(1, 2, 0), e.argsort(1), e.topk(0, 1).values, *e.cummax(1),
            torch.ones(0, 4, device=d) @ torch.ones(4, 2, device=d), torch.ones(3, 0, device=d) @ torch.ones(0, 2, device=d),
            rows, nn.functional.linear(torch.ones(0, 3, device=d), torch.ones(5, 3, device=d)),
        ]  # fmt: skip

    on_both(program, dev)
    assert torch.empty(0, 5, device=dev).stride() == torch.empty(0, 5).stride()


@pytest.mark.usefixtures("exact")
def test_gradients_pass_through_frozen_batch_norm(dev):
    def program(d):
        net = nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(2), nn.BatchNorm1d(4, affine=False)
        )
        warm, x = torch.rand(3, 2, 7, 7), torch.rand(3, 2, 7, 7)
        net.to(d)
        net(warm.to(d))
        torch_spool.sync()
        net.eval()
        x = x.to(d).requires_grad_()
        y = net(x)
        y.square().mean().backward()
        return [y, x.grad, *net.buffers(), *(p.grad for p in net.parameters())]

    on_both(program, dev)


@pytest.mark.usefixtures("exact")
def test_bfloat16_autocast_over_convolution_and_batch_norm_trains_as_on_the_cpu(dev):
    def program(d):
        net = nn.Sequential(nn.Conv2d(2, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU())
        x = torch.randn(3, 2, 6, 6)
        net.to(d)
        with torch.autocast(d.type, dtype=torch.bfloat16):
            conv = net[0](x.to(d))
            y = net[2](net[1](conv))
        assert conv.dtype == torch.bfloat16
        y.float().square().mean().backward()
        torch_spool.sync()
        return [conv, y.float(), *net.buffers(), *(p.grad for p in net.parameters())]

    on_both(program, dev)


def test_a_rate_that_changes_every_step_through_zero_and_one_compiles_nothing(dev):
    counts = []

    def program(d):
        net = nn.Linear(5, 4).to(d)
        optimiser = torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.8, weight_decay=1e-2, nesterov=True)
        rate = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda i: 0.5 * i if i < 4 else 0.8**i)
        for _ in range(10):
            optimiser.zero_grad()
            net(torch.ones(3, 5).to(d)).square().mean().backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.4)
            optimiser.step()
            rate.step()
            torch_spool.sync()
            counts.append(compiles())
        return list(net.parameters())

    on_both(program, dev)
    assert counts[9] == counts[2]


@pytest.mark.usefixtures("exact")
def test_reading_the_loss_and_summing_a_metric_every_step_compiles_nothing_after_an_epoch(dev):
    counts = []

    def program(d):
        net = nn.Sequential(nn.Linear(7, 9), nn.Tanh(), nn.Linear(9, 4))
        data = [(torch.randn(5, 7), torch.randint(4, (5,))) for _ in range(3)]
        net.to(d)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
        losses, right = [], torch.zeros((), device=d)
        for _ in range(4):
            for x, target in data:
                x, target = x.to(d), target.to(d)
                optimiser.zero_grad()
                out = net(x)
                loss = nn.functional.cross_entropy(out, target)
                loss.backward()
                optimiser.step()
                losses.append(loss.item())
                right += (out.argmax(1) == target).float().mean()
                torch_spool.sync()
            counts.append(compiles())
        return [torch.tensor(losses), right, *net.parameters()]

    on_both(program, dev)
    assert counts[3] == counts[0]


@pytest.mark.usefixtures("exact")
def test_a_loop_that_never_cuts_trains_the_model(dev):
    def program(d):
        net = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 1))
        x, y = torch.randn(14, 8), torch.randn(14, 1)
        net.to(d)
        x, y = x.to(d), y.to(d)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        losses = []
        for _ in range(30):
            optimiser.zero_grad()
            loss = nn.functional.mse_loss(net(x), y)
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        assert losses[-1] < losses[0] / 2
        return [*losses, *net.parameters()]

    on_both(program, dev)


def test_a_process_that_ends_with_work_running_and_more_held_in_a_cycle_ends_cleanly():
    done = run_program(
        "import torch, torch_spool\n"
        "net = torch.nn.Sequential(*[torch.nn.Linear(90, 90) for _ in range(8)]).to('xla')\n"
        "big = torch.rand(400, 400).to('xla')\n"
        "for _ in range(15):\n"
        "    big = big @ big / 200\n"
        "torch_spool.sync(wait=False)\n"
        "more = net(torch.ones(1, 90).to('xla')) + big.sum()\n"
        "net.kept, more.kept = [more, net], [net]\n"
        "print(tuple(more.shape))\n"
    )
    assert done.stdout == "(1, 90)\n" and done.stderr == ""


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("where", [None, "cpu", "xla"])
def test_states_saved_from_the_device_load_back_and_training_goes_on(dev, where):
    def parts(d):
        net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)).to(d)
        optimiser = torch.optim.Adam(net.parameters(), lr=0.1)
        return net, optimiser, torch.optim.lr_scheduler.StepLR(optimiser, 2, 0.5)

    def train(net, optimiser, rate, d, steps):
        for _ in range(steps):
            optimiser.zero_grad()
            (net(torch.arange(15.0).view(3, 5).cos().to(d)) ** 3).sum().backward()
            optimiser.step()
            rate.step()

    def program(d):
        net, optimiser, rate = parts(d)
        train(net, optimiser, rate, d, 3)
        file = io.BytesIO()
        torch.save(
            {
                "net": net.state_dict(), "optimiser": optimiser.state_dict(), "rate": rate.state_dict(),
                "turned": torch.arange(8, dtype=torch.int16, device=d).view(2, 4).t(),
                "half": torch.ones(2, dtype=torch.bfloat16, device=d), "complex": torch.tensor(2 - 1j, device=d),
            },
            file,
        )  # fmt: skip
        file.seek(0)
        state = torch.load(file, map_location=d if where == "xla" else where)
        expected = "cpu" if where == "cpu" else d.type
        moments = state["optimiser"]["state"][0]["exp_avg"]
        for tensor in (state["turned"], state["net"]["0.weight"], moments):
            assert tensor.device.type == expected
        net, optimiser, rate = parts(d)
        net.load_state_dict(state["net"])
        optimiser.load_state_dict(state["optimiser"])
        rate.load_state_dict(state["rate"])
        train(net, optimiser, rate, d, 2)
        return [
            state["turned"],
            state["half"],
            state["complex"],
            *net.state_dict().values(),
            torch.tensor(rate.get_last_lr()),
        ]

    on_both(program, dev)


def test_a_seed_fixes_every_kind_of_draw_and_the_next_draw_differs(dev):
    def draw():
        return [
            torch.zeros(30, device=dev).uniform_(), torch.randn(30, device=dev), torch.randperm(40, device=dev),
            nn.functional.dropout(torch.ones(150, device=dev), 0.3), torch.full((50,), 0.4, device=dev).bernoulli(),
            torch.randint(0, 500, (20,), device=dev),
        ]  # fmt: skip

    torch.manual_seed(21)
    first, following = draw(), draw()
    torch.manual_seed(21)
    torch_spool.sync(wait=True)
    again = draw()
    torch_spool.sync(wait=True)
    torch.manual_seed(22)
    other = draw()
    for a, b, c, d in zip(first, again, other, following, strict=True):
        same(a, b.cpu())
        assert not torch.equal(a.cpu(), c.cpu())
        assert not torch.equal(a.cpu(), d.cpu())
    assert sorted(first[2].tolist()) == list(range(40))


def test_a_model_that_is_let_go_while_its_work_is_pending_does_no_harm(dev):
    net = nn.Linear(6, 6).to(dev)
    out = net(torch.ones(2, 6, device=dev))
    want = nn.functional.linear(torch.ones(2, 6), net.weight.cpu(), net.bias.cpu())
    out = net(torch.ones(2, 6, device=dev))
    del net
    gc.collect()
    same(out, want)

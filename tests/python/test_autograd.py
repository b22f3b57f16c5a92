"""What PyTorch's autograd offers works on the lazy device as on the CPU, with equal results."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_spool
from helpers import as_eager, count, same, same_all

pytestmark = pytest.mark.usefixtures("exact")


def test_hooks_see_and_change_gradients(dev):
    def program(device):
        x = torch.arange(3.0, device=device).requires_grad_()
        seen = []
        y = x * 2
        y.register_hook(lambda g: seen.append(g.clone()))
        y.register_hook(lambda g: g * 10)
        y.retain_grad()
        x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
        y.grad_fn.register_hook(lambda into, outof: seen.append(into[0].clone()))
        (y * y).sum().backward()
        return [x.grad, y.grad, *seen]

    as_eager(program, dev)


def test_module_hooks_run_forward_and_backward(dev):
    def program(device):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).to(device)
        seen = []
        net[0].register_forward_pre_hook(lambda m, a: (a[0] + 1,))
        net[0].register_forward_hook(lambda m, a, out: out * 2)
        net[0].register_full_backward_hook(lambda m, into, outof: seen.extend([into[0], outof[0]]))
        net[0].register_full_backward_pre_hook(lambda m, outof: (outof[0] * 3,))
        x = torch.ones(2, 3, device=device, requires_grad=True)
        net(x).sum().backward()
        return [x.grad, net[0].weight.grad, *seen]

    as_eager(program, dev)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        ctx.mark_non_differentiable(sign := x.sign())
        return x**3 * scale, sign

    @staticmethod
    def backward(ctx, grad, _):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad * ctx.scale, None


def test_a_function_of_ones_own_has_first_and_second_gradients(dev):
    def program(device):
        x = torch.tensor([1.0, -2.0, 3.0], device=device, requires_grad=True)
        y, sign = Cube.apply(x, 2.0)
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return [y, sign, first, second]

    as_eager(program, dev)


def test_gradients_of_gradients_train_through_a_penalty(dev):
    def program(device):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
        x = torch.randn(5, 4).to(device).requires_grad_()
        (g,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        ((g.norm(dim=1) - 1) ** 2).mean().backward()
        return [p.grad for p in net.parameters() if p.grad is not None]

    as_eager(program, dev)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_keeps_random_numbers_and_runs_forward_again(dev, reentrant):
    def program(device):
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Tanh()).to(device)
        x = torch.randn(4, 6).to(device).requires_grad_()
        runs = []
        y = checkpoint(
            lambda t: (runs.append(1), net(t))[1], x, use_reentrant=reentrant, preserve_rng_state=True
        )
        y.sum().backward()
        assert len(runs) == 2
        return [y, x.grad, net[0].weight.grad, torch.rand(3, device=device)]

    as_eager(program, dev)


def test_a_graph_is_kept_only_where_that_is_asked_for(dev):
    x = torch.ones(3, device=dev, requires_grad=True)
    y = (x.exp() * 2).sum()
    y.backward(retain_graph=True)
    y.backward()
    same(x.grad, torch.ones(3).exp() * 4)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_anomaly_mode_names_the_forward_line_of_a_nan(dev):
    x = torch.zeros(2, device=dev, requires_grad=True)
    with (
        pytest.warns(UserWarning, match="Error detected in .*Backward0"),
        pytest.raises(RuntimeError, match="returned nan values"),
        torch.autograd.detect_anomaly(),
    ):
        (x.sqrt() * 0).sum().backward()
    same(x + 1, torch.ones(2))


def test_function_transforms(dev):
    from torch import func

    def program(device):
        x = torch.arange(6.0, device=device).view(2, 3) / 4
        f = lambda t: (t.sin() * t).sum()  # noqa: E731
        net = nn.Linear(3, 2).to(device)
        parameters = {k: v.detach() for k, v in net.named_parameters()}

        def loss(p, t):
            return func.functional_call(net, p, (t,)).square().sum()

        per_sample = func.vmap(func.grad(loss), (None, 0))(parameters, x)
        _, tangent = func.jvp(lambda t: t.exp() * 2, (x,), (torch.ones_like(x),))
        value, pull = func.vjp(lambda t: t.cos(), x)
        return [
            func.grad(f)(x), func.vmap(f)(x), func.vmap(func.grad(f))(x), tangent, value, pull(torch.ones_like(x))[0],
            func.jacrev(lambda t: t * t)(x[0]), func.jacfwd(lambda t: t * t)(x[0]), func.hessian(f)(x[0]),
            *per_sample.values(), func.functional_call(net, parameters, (x,)).detach(),
        ]  # fmt: skip

    as_eager(program, dev)


def test_forward_mode(dev):
    import torch.autograd.forward_ad as fwad

    def program(device):
        with fwad.dual_level():
            x = fwad.make_dual(torch.arange(3.0, device=device), torch.ones(3, device=device))
            y = fwad.unpack_dual((x * x).sin())
        return [y.primal, y.tangent]

    as_eager(program, dev)


def test_a_scaled_loss_is_unscaled_and_steps_with_infinite_gradients_are_left_out(dev):
    def program(device):
        torch.manual_seed(0)
        net = nn.Linear(3, 1).to(device)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(device.type, init_scale=4.0, growth_interval=2)
        scales = []
        for step in range(5):
            optimiser.zero_grad()
            loss = net(torch.full((2, 3), float(step), device=device)).square().sum()
            if step == 2:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            scaler.unscale_(optimiser)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimiser)
            scaler.update()
            scales.append(torch.tensor(scaler.get_scale()).to(device))
        return [net.weight.detach(), *scales]

    as_eager(program, dev)


CAST = {
    "linear": lambda x, d: nn.functional.linear(x, x),
    "matmul": lambda x, d: x @ x,
    "convolution": lambda x, d: nn.functional.conv2d(x[None, None], x[None, None]),
    "softmax": lambda x, d: x.softmax(0),
    "layer norm": lambda x, d: nn.functional.layer_norm(x, (3,)),
    "loss": lambda x, d: nn.functional.mse_loss(x @ x, x),
    "cross entropy": lambda x, d: nn.functional.cross_entropy(x @ x, torch.tensor([0, 1, 2]).to(d)),
    "sum of both": lambda x, d: (x @ x) + x,
    "cat": lambda x, d: torch.cat([x @ x, x]),
    "attention": lambda x, d: nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
    "gelu": lambda x, d: nn.functional.gelu(x @ x),
    "prod": lambda x, d: (x @ x).prod(),
    "norm": lambda x, d: torch.linalg.vector_norm(x @ x),
    "binary cross entropy": lambda x, d: nn.functional.binary_cross_entropy_with_logits(x @ x, x.sigmoid()),
    "pool": lambda x, d: nn.functional.avg_pool2d((x @ x)[None], 2),
    "cumsum": lambda x, d: (x @ x).cumsum(0),
    "einsum": lambda x, d: torch.einsum("ij,jk->ik", x, x),
    "bmm": lambda x, d: x[None].bmm(x[None]),
    "inside out": lambda x, d: torch.autocast(d.type, enabled=False)(lambda: x @ x)(),
}


@pytest.mark.parametrize("name", CAST)
def test_autocast_casts_as_on_the_cpu(dev, name):
    def program(device):
        x = (
            ((torch.arange(9.0) - 4) / 8).view(3, 3).clone().to(device).requires_grad_()
        )  # casts of views are not kept
        with torch.autocast(device.type, dtype=torch.bfloat16):
            y = CAST[name](x, device)
        (g,) = torch.autograd.grad(y.float().sum(), x)
        return [y, g]

    as_eager(program, dev)


def test_a_nested_leaf_update_and_accumulated_gradients(dev):
    def program(device):
        w = torch.ones(3, device=device, requires_grad=True)
        for i in range(4):
            (w * (i + 1)).square().sum().backward()
            if i % 2:
                with torch.no_grad():
                    w -= 0.01 * w.grad
                w.grad = None
        return [w.detach()]

    as_eager(program, dev)


def test_inference_mode_records_as_ever(dev):
    def program(device):
        with torch.inference_mode():
            x = torch.arange(4.0, device=device)
            x.view(2, 2)[0].mul_(3)
            return [x * 2, x]

    same_all([t.cpu() for t in program(dev)], program(torch.device("cpu")))


DEPENDS_ON_DATA = {
    "nonzero": lambda x: [torch.nonzero(x > 1)],
    "nonzero as tuple": lambda x: list(torch.nonzero(x > 1, as_tuple=True)),
    "unique": lambda x: list(torch.unique(x, return_inverse=True, return_counts=True)),
    "boolean index": lambda x: [x[x > 1]],
    "masked_select": lambda x: [x.masked_select(x > 1)],
    "where of one": lambda x: list(torch.where(x > 1)),
    "unique_consecutive": lambda x: [torch.unique_consecutive(x)],
    "repeat_interleave": lambda x: [torch.repeat_interleave(x.flatten(), x.flatten().long())],
    "bincount": lambda x: [torch.bincount(x.flatten().long())],
    "item branch": lambda x: [x * 2 if x.sum().item() > 3 else x * 3],
    "bool branch": lambda x: [x * 2 if (x > 5).any() else x * 3],
}


@pytest.mark.parametrize("name", DEPENDS_ON_DATA)
def test_an_op_whose_result_depends_on_data_cuts_once_and_the_place_is_told(dev, name):
    program = DEPENDS_ON_DATA[name]
    base = torch.tensor([[0.0, 1.0, 2.0], [2.0, 3.0, 1.0]])
    want = program(base + 0)
    x = base.to(dev)
    torch_spool.sync(wait=True)
    torch_spool.debug.metrics.clear_all()
    got = program(x + 0)
    assert launches() == 1
    same_all(got, want)
    with torch_spool.compile(name="region"):
        program(x + 0)
    assert count("GraphBreak") >= 1 or "test_autograd.py" in torch_spool.debug.metrics.metrics_report()


def launches() -> int:
    from helpers import executions

    return executions()

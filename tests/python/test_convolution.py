"""Convolutions forward and backward against eager's, over the shapes that engines treat differently."""

import copy

import pytest
import torch
from torch import nn

import torch_spool

# channels in, out, spatial sizes, and what nn.Conv takes
SHAPES = {
    "3x3": (16, 32, (9, 9), {"kernel_size": 3, "padding": 1}),
    "3x3 over three channels": (3, 32, (17, 16), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "7x7 as in a ResNet's stem": (
        3,
        64,
        (32, 32),
        {"kernel_size": 7, "stride": 2, "padding": 3, "bias": False},
    ),
    "1x1": (32, 64, (7, 5), {"kernel_size": 1, "bias": False}),
    "1x1 that skips rows": (32, 64, (8, 10), {"kernel_size": 1, "stride": 2}),
    "stride that leaves rows out": (16, 16, (10, 9), {"kernel_size": 3, "stride": 3}),
    "uneven kernel": (16, 16, (10, 9), {"kernel_size": (1, 5), "padding": (0, 2)}),
    "dilated": (32, 16, (12, 11), {"kernel_size": 3, "padding": 2, "dilation": 2}),
    "groups": (64, 32, (6, 7), {"kernel_size": 3, "groups": 2}),
    "depthwise": (32, 32, (6, 7), {"kernel_size": 3, "padding": 1, "groups": 32}),
    "channels that fill no block": (10, 20, (6, 7), {"kernel_size": 3}),
    "one channel": (1, 1, (6, 7), {"kernel_size": 3}),
    "one dimension": (16, 32, (20,), {"kernel_size": 5, "padding": 2}),
    "three dimensions": (16, 16, (5, 6, 7), {"kernel_size": 3, "padding": 1}),
    "an image of one pixel": (16, 32, (1, 1), {"kernel_size": 1}),
}


def module(channels_in, channels_out, spatial, **options):
    kind = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[len(spatial)]
    torch.manual_seed(0)
    return kind(channels_in, channels_out, **options), torch.randn(2, channels_in, *spatial)


def gradients(layer, x, device):
    """The output and all gradients of a layer on a device, on the CPU."""
    layer, x = copy.deepcopy(layer).to(device), x.detach().to(device)
    x.requires_grad_()
    y = layer(x)
    y.square().mean().backward()
    results = {"output": y, "input's gradient": x.grad}
    results |= {f"{name}'s gradient": p.grad for name, p in layer.named_parameters()}
    return {name: tensor.detach().cpu() for name, tensor in results.items()}


def close(got, want, dtype):
    """Within the tolerances that PyTorch's own tests give convolutions, relative to the largest element."""
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float64: 1e-10}[dtype]
    for name, expected in want.items():
        assert got[name].stride() == expected.stride(), name
        torch.testing.assert_close(
            got[name], expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()), msg=name
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_as_eager(dev, shape, dtype):
    *sizes, options = SHAPES[shape]
    layer, x = module(*sizes, **options)
    layer, x = layer.to(dtype), x.to(dtype)
    close(gradients(layer, x, dev), gradients(layer, x, "cpu"), dtype)


@pytest.mark.parametrize("shape", ["3x3", "3x3 over three channels", "1x1", "depthwise"])
def test_channels_last_stays_channels_last(dev, shape):
    *sizes, options = SHAPES[shape]
    layer, x = module(*sizes, **options)
    layer, x = layer.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    close(gradients(layer, x, dev), gradients(layer, x, "cpu"), torch.float32)


def test_transposed_as_eager(dev):
    torch.manual_seed(0)
    layer, x = nn.ConvTranspose2d(16, 32, 3, stride=2, output_padding=1), torch.randn(2, 16, 5, 6)
    close(gradients(layer, x, dev), gradients(layer, x, "cpu"), torch.float32)


class Residual(nn.Module):
    """What layouts have to pass through: statistics, sums, a pool, a slice of channels, a flat view."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(32)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.a = nn.Conv2d(32, 32, 3, padding=1, bias=False)
        self.a_norm = nn.BatchNorm2d(32)
        self.b = nn.Conv2d(32, 48, 1)
        self.head = nn.Linear(48 + 16 + 32 * 64, 5)

    def forward(self, x):
        x = self.pool(self.norm(self.stem(x)).relu())
        y = (self.a_norm(self.a(x)) + x).relu()
        z = self.b(y)
        features = [z.mean((2, 3)), y[:, 8:24].amax((2, 3)), y.flatten(1)]
        return self.head(torch.cat(features, 1)).log_softmax(1)


def test_a_residual_network_trains_as_on_the_cpu(dev):
    torch.manual_seed(0)
    model, x, target = Residual(), torch.randn(4, 3, 16, 16), torch.tensor([0, 3, 1, 2])

    def train(device):
        net = copy.deepcopy(model).to(device)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        losses = []
        for _ in range(5):
            optimiser.zero_grad()
            loss = nn.functional.nll_loss(net(x.to(device)), target.to(device))
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
            torch_spool.sync()
        tensors = [*losses, *net.state_dict().values(), *(p.grad for p in net.parameters())]
        return [tensor.detach().cpu() for tensor in tensors]

    for got, want in zip(train(dev), train("cpu"), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_an_activation_that_is_kept_reads_as_usual(dev):
    torch.manual_seed(0)
    first, second = nn.Conv2d(3, 32, 3), nn.Conv2d(32, 16, 3)
    x = torch.randn(2, 3, 9, 9)
    with torch.no_grad():
        kept = first.to(dev)(x.to(dev))
        out = second.to(dev)(kept)
        torch_spool.sync()
        expected = first.to("cpu")(x)
        torch.testing.assert_close(kept.cpu(), expected)
        torch.testing.assert_close((kept[:, 3:7] * 2).cpu(), expected[:, 3:7] * 2)
        torch.testing.assert_close(out.cpu(), second.to("cpu")(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("window", [(2, 2, 0), (3, 2, 1), ((3, 2), (1, 2), (1, 0))], ids=str)
def test_pooling_between_convolutions_is_eagers_with_ties_and_nans(dev, window):
    torch.manual_seed(0)
    layer = nn.Conv2d(16, 16, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(16)[:, :, None, None])
    x = torch.randint(0, 3, (2, 16, 9, 8)).float()
    x[0, :, 2, 3] = float("nan")
    x[1, :, 4:7, :5] = -float("inf")

    def run(device):
        net = copy.deepcopy(layer).to(device)
        image = x.detach().to(device).requires_grad_()
        y = nn.functional.max_pool2d(net(image), *window)
        (y * torch.arange(y.numel(), device=device).reshape(y.shape)).nan_to_num(0, 0, 0).sum().backward()
        return [y.detach().cpu(), image.grad.cpu()]

    for got, want in zip(run(dev), run("cpu"), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_statistics_over_large_images_keep_their_digits(dev):
    torch.manual_seed(0)
    x = torch.randn(4, 3, 128, 128) + 2.0
    conv, norm = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16)

    def run(device, dtype=torch.float32):
        layers = copy.deepcopy(nn.Sequential(conv, norm)).to(dtype).to(device)
        y = layers(x.to(dtype).to(device))
        return [t.detach().cpu().double() for t in (y, layers[1].running_mean, layers[1].running_var)]

    for got, want in zip(run(dev), run("cpu", torch.float64), strict=True):
        assert float((got - want).norm() / want.norm()) < 2e-6

"""Data and files: what is saved, copied, loaded or printed on the device is what eager gives."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import torch_spool
from helpers import count, same, same_all

VALUES = {
    "float32": lambda: torch.arange(6.0).view(2, 3) / 4,
    "bfloat16": lambda: torch.arange(6.0).to(torch.bfloat16),
    "float64 transposed": lambda: torch.arange(6.0, dtype=torch.float64).view(2, 3).t(),
    "int64": lambda: torch.arange(4),
    "bool": lambda: torch.tensor([True, False]),
    "complex64": lambda: torch.tensor([1 + 2j, -1j]),
    "0-dim": lambda: torch.tensor(3.5),
    "nothing": lambda: torch.zeros(0, 3),
}


@pytest.mark.parametrize("pending", [True, False])
@pytest.mark.parametrize("name", VALUES)
def test_a_tensor_is_saved_and_loaded(dev, name, pending):
    want = VALUES[name]()
    tensor = want.to(dev)
    tensor = tensor.clone() if pending else tensor
    if not pending:
        torch_spool.sync(wait=True)
    file = io.BytesIO()
    torch.save({"x": tensor, "n": 3}, file)
    for options in (
        {},
        {"map_location": "cpu"},
        {"map_location": dev},
        {"weights_only": True},
        {"map_location": {"xla:0": "cpu"}},
    ):
        file.seek(0)
        got = torch.load(file, **options)["x"]
        on_cpu = options.get("map_location") in ("cpu", {"xla:0": "cpu"})
        assert got.device.type == ("cpu" if on_cpu else "xla")
        same(got, want)
    file = io.BytesIO()
    torch.save({"x": want}, file)
    file.seek(0)
    same(torch.load(file, map_location=dev, weights_only=True)["x"], want)


@pytest.mark.parametrize("name", VALUES)
def test_a_tensor_is_pickled_and_copied(dev, name):
    want = VALUES[name]()
    tensor = want.to(dev).clone()
    for got in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor), copy.copy(tensor)):
        assert got.device == dev and got.stride() == tensor.stride()
        same(got, want)
    copied = copy.deepcopy(tensor)
    if tensor.numel():
        copied.zero_()
        same(tensor, want)


@pytest.mark.xfail(
    strict=True,
    reason="PyTorch copies and pickles tensors of devices of this name one by one, by value (_tensor.py)",
)
def test_tensors_that_share_a_storage_share_it_after_a_copy_and_a_file(dev):
    x = torch.arange(6.0).to(dev)
    pair = {"whole": x, "part": x[2:4]}
    file = io.BytesIO()
    torch.save(pair, file)
    file.seek(0)
    for other in (copy.deepcopy(pair), torch.load(file)):
        other["part"].add_(10)
        same(other["whole"], torch.tensor([0.0, 1, 12, 13, 4, 5]))
    same(x, torch.arange(6.0))


def test_a_parameter_is_saved_as_one(dev):
    parameter = torch.nn.Parameter(torch.ones(2, device=dev))
    file = io.BytesIO()
    torch.save(parameter, file)
    file.seek(0)
    got = torch.load(file, weights_only=True)
    assert isinstance(got, torch.nn.Parameter) and got.requires_grad and got.device == dev
    same(got, torch.ones(2))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_feeds_the_device_in_eagers_order(dev, workers):
    data = TensorDataset(torch.arange(24.0).view(12, 2), torch.arange(12))

    def program(device):
        torch.manual_seed(4)
        torch.rand(3, device=device)  # pending while the workers start
        loader = DataLoader(data, 5, shuffle=True, num_workers=workers, pin_memory=device.type == "xla")
        total = torch.zeros(2, device=device)
        seen = []
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            total += x.sum(0)
            seen.append(y)
        return [total, *seen]

    same_all(program(dev), program(torch.device("cpu")))


def test_a_copy_that_does_not_block_takes_the_values_of_now(dev):
    host = torch.ones(4)
    there = host.to(dev, non_blocking=True)
    host.fill_(2)
    same(there, torch.ones(4))
    back = torch.zeros(4)
    back.copy_(there * 3, non_blocking=True)
    torch_spool.wait_device_ops()
    same(back, torch.full((4,), 3.0))


def test_numpy_reads_a_tensor_through_the_host(dev):
    x = torch.arange(6.0).view(2, 3).to(dev) * 2
    assert np.array_equal(x.cpu().numpy(), np.arange(6.0).reshape(2, 3) * 2)
    with pytest.raises(TypeError):
        x.numpy()
    assert np.array_equal(x.numpy(force=True), x.cpu().numpy())
    assert x.tolist() == x.cpu().tolist()
    same(torch.from_numpy(np.ones(3, np.float32)).to(dev), torch.ones(3))
    assert float(np.float32(2) * x[0, 1].item()) == 4.0


def test_dlpack_goes_through_the_host(dev):
    x = torch.arange(4.0).to(dev)
    same(torch.from_dlpack(x.cpu()), torch.arange(4.0))
    with pytest.raises((BufferError, RuntimeError, ValueError, NotImplementedError)):
        torch.utils.dlpack.to_dlpack(x)
    same(x + 1, torch.arange(4.0) + 1)


def test_bfloat16_goes_to_numpy_as_float32(dev):
    x = torch.tensor([1.0, 0.1, -3.0]).to(torch.bfloat16).to(dev)
    assert np.array_equal(x.float().cpu().numpy(), x.cpu().float().numpy())
    with pytest.raises(TypeError):
        x.cpu().numpy()


PRINTED = {
    "large": lambda d: torch.arange(5000.0, device=d).view(50, 100),
    "0-dim": lambda d: torch.tensor(2.5, device=d) * 2,
    "bool": lambda d: torch.tensor([True, False], device=d),
    "complex": lambda d: torch.tensor([1 + 2j], device=d) * 2,
    "wants a gradient": lambda d: torch.ones(2, device=d, requires_grad=True),
    "has a function": lambda d: torch.ones(2, device=d, requires_grad=True) * 2,
    "parameter": lambda d: torch.nn.Parameter(torch.ones(2, 2, device=d)),
    "int": lambda d: torch.arange(3, device=d, dtype=torch.int32),
    "half": lambda d: torch.ones(2, device=d, dtype=torch.float16) / 3,
    "nothing": lambda d: torch.zeros(0, 2, device=d),
    "not finite": lambda d: torch.tensor([float("nan"), float("inf"), 1e-9], device=d),
    "large numbers": lambda d: torch.tensor([1e10, 1.0, -2.5], device=d),
}


@pytest.mark.parametrize("name", PRINTED)
def test_it_prints_as_eager_does_but_for_the_device(dev, name):
    got, want = repr(PRINTED[name](dev)), repr(PRINTED[name](torch.device("cpu")))
    squeezed = got.replace("device='xla:0', ", "").replace(", device='xla:0'", "")
    assert squeezed.split() == want.split()
    assert "device='xla:0'" in got


@pytest.mark.parametrize("name", PRINTED)
def test_printing_is_one_read(dev, name):
    x = PRINTED[name](dev)
    torch_spool.sync(wait=True)
    torch_spool.debug.metrics.clear_all()
    repr(x)
    data = torch_spool.debug.metrics.metric_data("TransferFromDeviceTime")
    assert (data[0] if data else 0) == 1 and count("aten::_local_scalar_dense") == 0

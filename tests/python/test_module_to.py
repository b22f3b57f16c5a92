"""`module.to(device)` keeps what the program holds: parameters' identity, ties, hooks, optimisers."""

import copy
import io
import pickle

import torch
from torch import nn

import torch_spool
from helpers import same, same_all


def test_parameters_keep_their_identity(dev):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    before = list(model.parameters())
    assert model.to(dev) is model
    for old, new in zip(before, model.parameters(), strict=True):
        assert old is new and new.device == dev and new.is_leaf and new.requires_grad
    for buffer in model.buffers():
        assert buffer.device == dev
    model.to("cpu")
    for old, new in zip(before, model.parameters(), strict=True):
        assert old is new and new.device.type == "cpu"


def test_tied_weights_stay_tied(dev):
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(7, 5)
            self.head = nn.Linear(5, 7, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens):
            return self.head(self.embedding(tokens))

    def program(device):
        torch.manual_seed(0)
        model = Tied().to(device)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimiser.zero_grad()
            model(torch.tensor([1, 2, 6]).to(device)).square().mean().backward()
            optimiser.step()
        return model

    model = program(dev)
    assert model.head.weight is model.embedding.weight
    assert len(list(model.parameters())) == 1
    same(model.head.weight, program("cpu").head.weight)


def test_an_optimiser_made_before_the_move_trains_the_moved_model(dev):
    def program(device):
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
        model.to(device)
        for _ in range(5):
            optimiser.zero_grad()
            model(torch.ones(3, 4).to(device)).square().sum().backward()
            optimiser.step()
            torch_spool.sync()
        return list(model.parameters())

    same_all(program(dev), program("cpu"))


def test_hooks_on_parameters_and_modules_stay(dev):
    model = nn.Linear(2, 2)
    seen = []
    model.weight.register_hook(lambda grad: seen.append(grad.device.type))
    model.register_forward_hook(lambda *_: seen.append("forward"))
    model.to(dev)
    model(torch.ones(1, 2, device=dev)).sum().backward()
    assert seen == ["forward", "xla"]


def test_a_model_built_on_the_device_equals_one_that_was_moved_there(dev):
    torch.manual_seed(3)
    with torch.device(dev):
        built = nn.Sequential(nn.Linear(5, 3), nn.LayerNorm(3))
    torch.manual_seed(3)
    moved = nn.Sequential(nn.Linear(5, 3), nn.LayerNorm(3)).to(dev)
    same_all(built.state_dict().values(), [t.cpu() for t in moved.state_dict().values()])


def test_dtype_and_device_are_changed_in_one_move(dev):
    model = nn.Linear(3, 3)
    want = copy.deepcopy(model).to(torch.bfloat16)
    model.to(dev, torch.bfloat16)
    assert model.weight.dtype == torch.bfloat16
    same(model.weight, want.weight)


def test_a_move_of_a_model_with_gradients_takes_them_along(dev):
    model = nn.Linear(3, 1)
    model(torch.ones(2, 3)).sum().backward()
    want = model.weight.grad.clone()
    model.to(dev)
    assert model.weight.grad.device == dev
    same(model.weight.grad, want)


def test_copies_pickles_and_state_dicts_go_both_ways(dev):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(dev)
    want = [t.cpu() for t in model.state_dict().values()]
    copied = copy.deepcopy(model)
    assert copied[0].weight is not model[0].weight and copied[0].weight.device == dev
    same_all(copied.state_dict().values(), want)
    same_all(pickle.loads(pickle.dumps(model.state_dict())).values(), want)
    on_cpu = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    on_cpu.load_state_dict(model.state_dict())
    same_all(on_cpu.state_dict().values(), want)
    fresh = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(dev)
    fresh.load_state_dict(on_cpu.state_dict())
    same_all(fresh.state_dict().values(), want)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    for where, kind in ((None, "xla"), ("cpu", "cpu"), (dev, "xla")):
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        assert {t.device.type for t in loaded.values()} == {kind}
        same_all(loaded.values(), want)

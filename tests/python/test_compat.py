"""Programs written for torch_xla run on Spool: by `python -m torch_spool`, or after `compat.install()`."""

import pytest
import torch

import torch_spool
from helpers import executions, run_program, run_python, same, same_all
from torch_spool.core import xla_model as xm

SCRIPT = """
import argparse
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch_xla.debug import profiler as xp
from torch_xla import experimental

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
steps = parser.parse_args().steps
device = xm.xla_device()
torch.manual_seed(0)
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(steps):
    with xp.StepTrace("train", step_num=step):
        optimizer.zero_grad()
        loss = model(torch.ones(3, 4).to(device)).square().mean()
        loss.backward()
        xm.optimizer_step(optimizer)
        xm.add_step_closure(lambda t: losses.append(t.item()), args=(loss,))
    xm.mark_step()
xm.wait_device_ops()
assert len(losses) == steps
assert met.metric_data("CompileTime")[0] >= 1
assert met.counter_value("CachedCompile") >= 1
with torch_xla.step():
    y = torch.ones(2, device=torch_xla.device()) + 1
experimental.eager_mode(False)
import torch_spool
assert torch_xla is torch_spool and xm is torch_spool.core.xla_model
assert torch_xla.sync is torch_spool.sync and met is torch_spool.debug.metrics
assert torch_spool.__spec__.name == "torch_spool"
assert xm.__spec__.name == "torch_spool.core.xla_model"
xm.master_print(__name__, y.tolist(), losses[-1] < losses[0])
"""


def test_a_torch_xla_script_runs_unchanged_by_python_dash_m(tmp_path):
    (tmp_path / "beside.py").write_text("VALUE = 3\n")
    script = tmp_path / "script.py"
    script.write_text("import sys\nimport beside\n" + SCRIPT + "print(sys.argv[1:], beside.VALUE)\n")
    done = run_python("-m", "torch_spool", str(script), "--steps", "5")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "__main__ [2.0, 2.0] True\n['--steps', '5'] 3\n"


def test_a_module_runs_with_dash_m(tmp_path):
    (tmp_path / "program.py").write_text("import sys, torch_xla\nprint(torch_xla.device(), sys.argv[1:])\n")
    done = run_python("-m", "torch_spool", "-m", "program", "-x", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "xla:0 ['-x', '1']\n"


def test_help_says_how_to_call_it():
    done = run_python("-m", "torch_spool", "--help")
    assert done.returncode == 0
    assert "python -m torch_spool" in done.stdout and "torch_xla" in done.stdout


def test_a_script_that_is_not_there_and_no_script_are_refused_with_usage(tmp_path):
    for args in (["-m", "torch_spool", str(tmp_path / "missing.py")], ["-m", "torch_spool"]):
        done = run_python(*args)
        assert done.returncode == 2
        assert "usage:" in done.stderr


def test_a_scripts_exit_status_and_exception_are_its_own(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys, torch_xla\nsys.exit(9)\n")
    assert run_python("-m", "torch_spool", str(script)).returncode == 9
    script.write_text("import torch_xla\nraise KeyError('mine')\n")
    done = run_python("-m", "torch_spool", str(script))
    assert done.returncode == 1 and "KeyError: 'mine'" in done.stderr


def test_install_may_be_called_twice_and_names_what_spool_has_not():
    run_program(
        "from torch_spool import compat\n"
        "compat.install(); compat.install()\n"
        "import torch_xla, torch_spool\n"
        "assert torch_xla is torch_spool\n"
        "try:\n"
        "    import torch_xla.no_such_part\n"
        "except ModuleNotFoundError as error:\n"
        "    assert str(error).startswith('[torch_spool.compat]') and 'no_such_part' in str(error), error\n"
        "else:\n"
        "    raise SystemExit('expected an error')\n"
    )


def test_install_refuses_when_another_torch_xla_is_loaded(tmp_path):
    (tmp_path / "torch_xla.py").write_text("")
    run_program(
        "import torch_xla\n"
        "from torch_spool import compat\n"
        "try:\n"
        "    compat.install()\n"
        "except RuntimeError as error:\n"
        "    assert str(error).startswith('[torch_spool.compat]'), error\n"
        "else:\n"
        "    raise SystemExit('expected an error')\n",
        cwd=tmp_path,
    )


@pytest.mark.serial
def test_importing_the_package_is_fast_and_light():
    run_program(
        "import sys, time, torch\n"
        "before, start = set(sys.modules), time.perf_counter()\n"
        "import torch_spool\n"
        "took = time.perf_counter() - start\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "assert new <= {'torch_spool', 'torch'}, new\n"
        "assert not [n for n in set(sys.modules) - before if n.startswith('torch.') and n != 'torch.xla']\n"
        "assert took < 0.3, took\n"
    )


def test_older_names_are_the_new_functions(dev):
    assert xm.xla_device() == dev and xm.xla_devices() == torch_spool.devices()
    assert xm.get_xla_supported_devices() == ["xla:0"]
    assert xm.get_xla_supported_devices("CPU", max_devices=0) == []
    assert xm.xla_device_hw(dev) == "CPU"
    assert (xm.get_ordinal(), xm.get_world_size(), xm.is_master_ordinal()) == (0, 1, True)
    assert xm.mesh_reduce("loss", 3.0, sum) == 3.0
    x = torch.ones(2, device=dev) + 1
    xm.unlazy([x])
    y = x * 2
    xm.mark_step()
    xm.wait_device_ops()
    same(y, torch.full((2,), 4.0))


def test_optimizer_step_gives_the_closures_loss_and_cuts_with_barrier(dev):
    weight = torch.ones(2, device=dev, requires_grad=True)
    optimiser = torch.optim.SGD([weight], lr=0.5)

    def closure():
        optimiser.zero_grad()
        loss = weight.sum()
        loss.backward()
        return loss

    loss = xm.optimizer_step(optimiser, barrier=True, optimizer_args={"closure": closure})
    assert torch_spool._C.tape_length() == 0
    same(loss, torch.tensor(2.0))
    same(weight, torch.full((2,), 0.5))


def test_an_optimisation_barrier_changes_no_value(dev):
    x, y = torch.arange(3.0, device=dev) * 2, torch.ones(2, device=dev)
    xm.optimization_barrier_([x, y])
    z = x + 1
    same(z, torch.arange(3.0) * 2 + 1)
    same(y, torch.ones(2))


def test_save_writes_cpu_tensors_once_each_and_keeps_the_structure(dev, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).to(dev)
    shared = torch.arange(3.0, device=dev)
    data = {"net": model.state_dict(), "list": [shared, (shared, 4)], "text": "x", "ints": {1, 2}}
    xm.save(data, tmp_path / "file.pt")
    loaded = torch.load(tmp_path / "file.pt")
    assert loaded["list"][0] is loaded["list"][1][0]
    assert loaded["list"][0].device.type == "cpu" and data["list"][0].device == dev
    assert loaded["text"] == "x" and loaded["ints"] == {1, 2} and loaded["list"][1][1] == 4
    same_all(loaded["net"].values(), [t.cpu() for t in model.state_dict().values()])
    assert loaded["net"]._metadata == model.state_dict()._metadata
    xm.save(model, tmp_path / "model.pt")
    whole = torch.load(tmp_path / "model.pt", weights_only=False)
    assert whole[0].weight.device.type == "cpu" and model[0].weight.device == dev
    same(whole[0].weight, model[0].weight.cpu())


def test_data_of_any_structure_is_sent_to_the_device(dev):
    (sent,) = xm.send_cpu_data_to_device([{"x": torch.ones(2), "y": [torch.zeros(1), "name"]}], dev)
    assert sent["x"].device == dev and sent["y"][0].device == dev and sent["y"][1] == "name"


def test_collectives_of_one_replica_are_the_identity_and_scale(dev):
    x, parts = torch.arange(3.0, device=dev), [torch.ones(2, device=dev), torch.zeros(1, device=dev) + 4]
    same(xm.all_reduce(xm.REDUCE_SUM, x), torch.arange(3.0))
    same(xm.all_reduce("max", x, scale=0.5), torch.arange(3.0) / 2)
    assert xm.all_reduce("sum", parts, scale=0.25) is None
    same_all(parts, [torch.full((2,), 0.25), torch.ones(1)])
    same(xm.all_gather(x), torch.arange(3.0))
    same_all(xm.all_gather(parts), [torch.full((2,), 0.25), torch.ones(1)])
    xm.collective_broadcast(parts)
    assert xm.rendezvous("end", b"here") == [b"here"]
    for wrong in (lambda: xm.all_reduce("mean", x), lambda: xm.collective_broadcast(parts, root_ordinal=1)):
        with pytest.raises(ValueError, match=r"^\[(all_reduce|collective_broadcast)\] expected"):
            wrong()
    with pytest.raises(ValueError, match=r"^\[set_replication\] expected"):
        xm.set_replication(dev, [dev, dev])


def test_gradients_are_reduced_where_there_are_any(dev):
    used, unused = (torch.ones(2, device=dev, requires_grad=True) for _ in range(2))
    (used * 3).sum().backward()
    optimiser = torch.optim.SGD([used, unused], lr=1.0)
    xm.reduce_gradients(optimiser)
    same(used.grad, torch.full((2,), 3.0))
    assert unused.grad is None


def test_the_runtime_module_tells_of_one_replica_on_the_cpu():
    from torch_spool import runtime as xr

    assert (xr.world_size(), xr.global_ordinal(), xr.local_ordinal(), xr.process_count()) == (1, 0, 0, 1)
    assert xr.device_type() == "CPU" and xr.global_runtime_device_count() == torch_spool.device_count()
    assert xr.using_pjrt() and not xr.is_spmd()


@pytest.mark.parametrize("batches", [1, 2])
def test_a_device_loader_moves_batches_and_cuts_after_each_or_after_several(dev, batches):
    from torch_spool.distributed.parallel_loader import MpDeviceLoader

    loader = torch.utils.data.DataLoader([{"x": torch.full((2,), float(i))} for i in range(5)], batch_size=1)
    device_loader = MpDeviceLoader(loader, dev, batches_per_execution=batches, loader_prefetch_size=3)
    assert len(device_loader) == 5 and device_loader.dataset is loader.dataset
    for _ in range(2):
        before = executions()
        sums = [batch["x"].sum() for batch in device_loader]
        assert all(one.device == dev for one in sums)
        assert torch_spool._C.tape_length() == 0 and executions() - before == -(-5 // batches)
        same_all(sums, [torch.tensor(2.0 * i) for i in range(5)])


def test_a_device_loader_refuses_what_one_device_cannot_do(dev):
    from torch_spool.distributed.parallel_loader import MpDeviceLoader, ParallelLoader

    with pytest.raises(ValueError, match=r"^\[ParallelLoader\] expected one device, got 2"):
        ParallelLoader([], [dev, dev])
    with pytest.raises(ValueError, match=r"^\[ParallelLoader\] expected input_sharding None"):
        iter(MpDeviceLoader([], dev, input_sharding=object()))
    with pytest.raises(AttributeError):
        MpDeviceLoader([], dev).no_such_thing  # noqa: B018


def test_spawn_runs_the_only_replica_here():
    from torch_spool.distributed import xla_multiprocessing as xmp

    seen = []
    xmp.spawn(lambda index, name: seen.append((index, name)), args=("a",), nprocs=1)
    assert seen == [(0, "a")]
    assert xmp.MpSerialExecutor().run(lambda: 5) == 5
    with pytest.raises(ValueError, match=r"^\[spawn\] expected nprocs None or 1, got 4"):
        xmp.spawn(print, nprocs=4)


def test_packages_that_ask_for_the_release_of_torch_xla_are_told_the_last():
    run_program(
        "import importlib.metadata\n"
        "from torch_spool import compat\n"
        "compat.install()\n"
        "assert importlib.metadata.version('torch_xla') == importlib.metadata.version('torch-xla') == '2.9.0'\n"
        "assert importlib.metadata.version('torch').startswith('2.')\n"
        "names = {d.metadata['Name'] for d in importlib.metadata.distributions()}\n"
        "assert 'torch_xla' not in names and 'torch' in names\n"
    )

"""Bad input and faults: the error comes where eager's comes, and the process goes on."""

import os
import signal
import subprocess
import sys
import threading

import pytest
import torch
from torch.nn import functional as F

import torch_spool
from helpers import as_eager, environment, run_program, same

ones, zeros = torch.ones, torch.zeros

WRONG = {
    "mm shapes": lambda d: torch.mm(ones(2, 3, device=d), ones(2, 3, device=d)),
    "add shapes": lambda d: ones(2, device=d) + ones(3, device=d),
    "add_ shapes": lambda d: ones(1, device=d).add_(ones(3, device=d)),
    "view size": lambda d: ones(3, device=d).view(2),
    "select index": lambda d: ones(3, device=d)[5],
    "squeeze dim": lambda d: ones(2, 2, device=d).squeeze(5),
    "transpose dim": lambda d: ones(2, 2, device=d).transpose(0, 3),
    "cat shapes": lambda d: torch.cat([ones(2, 2, device=d), ones(3, 3, device=d)]),
    "stack shapes": lambda d: torch.stack([ones(2, device=d), ones(3, device=d)]),
    "conv channels": lambda d: F.conv2d(ones(1, 3, 4, 4, device=d), ones(2, 4, 3, 3, device=d)),
    "linear shapes": lambda d: F.linear(ones(2, 3, device=d), ones(4, 5, device=d)),
    "batch norm size": lambda d: F.batch_norm(
        ones(1, 3, device=d), zeros(3, device=d), ones(3, device=d), training=True
    ),
    "max_pool of nothing": lambda d: F.max_pool2d(ones(1, 1, 2, 2, device=d), 3),
    "expand": lambda d: ones(2, device=d).expand(3),
    "reduction dim": lambda d: ones(2, device=d).sum(4),
    "mm dtypes": lambda d: torch.mm(ones(2, 2, device=d), ones(2, 2, dtype=torch.int64, device=d)),
    "result dtype": lambda d: torch.arange(3, device=d).add_(1.5),
    "mean of ints": lambda d: torch.arange(3, device=d).mean(),
    "softmax of ints": lambda d: torch.softmax(torch.arange(3, device=d), 0),
    "bitwise of floats": lambda d: torch.bitwise_and(ones(2, device=d), ones(2, device=d)),
    "index dtype": lambda d: ones(3, device=d).index_select(0, ones(1, device=d)),
    "embedding dtype": lambda d: F.embedding(ones(2, device=d), ones(3, 2, device=d)),
    "leaf in place": lambda d: ones(2, device=d, requires_grad=True).add_(1),
    "backward of a vector": lambda d: (ones(2, device=d, requires_grad=True) * 2).backward(),
    "bool of many": lambda d: bool(ones(2, device=d)),
    "item of many": lambda d: ones(2, device=d).item(),
    "numpy": lambda d: ones(2, device=d, requires_grad=True).numpy(),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_raises_eagers_exception_at_its_line_and_later_work_goes_on(dev, name):
    with pytest.raises(Exception) as eager:
        WRONG[name]("cpu")
    x = torch.arange(3.0).to(dev)
    before = x + 1
    with pytest.raises(Exception) as caught:
        WRONG[name](dev)
    if name != "numpy":  # there eager's complaint of the gradient is one of the device
        assert caught.type is eager.type, f"{caught.value!r}, eager: {eager.value!r}"
    same(before * 2, (torch.arange(3.0) + 1) * 2)


@pytest.mark.parametrize(
    "mix",
    [
        lambda a, b: a + b,
        lambda a, b: b + a,
        lambda a, b: torch.mm(a.view(1, 3), b.view(3, 1)),
        lambda a, b: torch.cat([a, b]),
        lambda a, b: torch.where(a > 0, a, b),
        lambda a, b: a.add_(b),
    ],
)
def test_mixing_cpu_and_lazy_tensors_is_eagers_device_error(dev, mix):
    with pytest.raises(RuntimeError, match="device"):
        mix(ones(3, device=dev), ones(3))
    same(ones(3, device=dev) * torch.tensor(2.0), torch.full((3,), 2.0))  # a 0-dim CPU tensor is a number


def test_an_op_that_fails_while_running_is_reported_at_the_read_with_its_name_and_line(dev):
    x = torch.arange(5.0).to(dev)
    far = torch.tensor([1, 77]).to(dev)
    kept = x + 1
    torch_spool.sync(wait=True)
    bad = x.index_select(0, far)
    line = sys._getframe().f_lineno - 1
    with pytest.raises((IndexError, RuntimeError)) as caught:
        bad.cpu()
    assert "index_select" in str(caught.value)
    assert f"{os.path.basename(__file__)}:{line}" in str(caught.value)
    same(x, torch.arange(5.0))
    same(kept, torch.arange(5.0) + 1)
    same(far, torch.tensor([1, 77]))
    with pytest.raises((IndexError, RuntimeError)):
        bad.cpu()  # poisoned: each read says so
    with pytest.raises((IndexError, RuntimeError)):
        (bad + 1).cpu()  # and so does what is computed from it
    with torch_spool.step():
        fine = kept * 2
    same(fine, (torch.arange(5.0) + 1) * 2)


def test_a_failure_while_running_surfaces_at_the_next_wait_and_once(dev):
    x = torch.arange(5.0).to(dev)
    far = torch.tensor([99]).to(dev)
    bad = x.index_select(0, far)
    torch_spool._barrier()
    with pytest.raises((IndexError, RuntimeError)):
        torch_spool.wait_device_ops()
    torch_spool.wait_device_ops()
    torch_spool.sync(wait=True)
    del bad
    same(x + 1, torch.arange(5.0) + 1)


def test_a_tensor_that_a_failed_graph_should_have_written_can_be_written_anew_from_the_host(dev):
    x = torch.arange(5.0).to(dev)
    far = torch.tensor([99]).to(dev)
    out = x.index_select(0, far)
    with pytest.raises((IndexError, RuntimeError)):
        torch_spool.sync(wait=True)
    out.copy_(torch.full((1,), 3.0))
    same(out, torch.full((1,), 3.0))


def test_running_out_of_memory_is_a_clear_error_and_the_process_lives(dev):
    with pytest.raises((RuntimeError, MemoryError), match=r"(?i)memory|alloc"):
        huge = torch.zeros(1 << 47, device=dev)
        huge.add_(1)
        huge[0].item()
    same(ones(3, device=dev) + 1, torch.full((3,), 2.0))


STARVED = """
import resource, torch, torch_spool
x = torch.ones(1000).to("xla")
weight = torch.ones(1000).to("xla")
(x + 1).sum().item()
with open("/proc/self/statm") as file:
    mapped = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + (1 << 29), resource.RLIM_INFINITY))
for size in (1 << 28, 1 << 29):
    try:
        with torch_spool.options(exact=True), torch_spool.step():  # fused, it would need no memory at all
            total = torch.ones(size, device="xla").sin().cos().sum()
        total.item()
    except RuntimeError as error:
        assert "memory" in str(error), error
    else:
        raise SystemExit("expected an error")
    assert (x + 1).sum().item() == 2000.0
with torch_spool.step():
    weight.add_(x)
assert weight.sum().item() == 2000.0
"""


def test_a_plan_that_does_not_fit_in_memory_fails_alone():
    run_program(STARVED)


def test_an_error_in_backward_is_raised_by_backward_and_later_steps_are_fine(dev):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise KeyError("in backward")

    x = ones(3, device=dev, requires_grad=True)
    with pytest.raises(KeyError, match="in backward"):
        with torch_spool.step():
            Fails.apply(x).sum().backward()
    with torch_spool.step():
        (x * x).sum().backward()
    same(x.grad, torch.full((3,), 2.0))


INTERRUPTED = """
import sys, time, torch, torch_spool
from torch_spool.debug import metrics
a = torch.rand(1000, 1000).to("xla")
torch_spool.sync(wait=True)
metrics.clear_all()
for _ in range(100):
    a = (a @ a) * 1e-3
print("waiting", flush=True)
try:
    torch_spool.sync(wait=True)
except KeyboardInterrupt:
    unfinished = metrics.metric_data("ExecuteTime") is None
    print("interrupted", unfinished, flush=True)
    b = torch.ones(2, device="xla") + 1
    print(b.tolist(), flush=True)
    sys.exit(7)
print("not interrupted", flush=True)
"""


@pytest.mark.serial
def test_ctrl_c_interrupts_a_wait_and_the_process_can_go_on():
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "waiting\n"
        threading.Event().wait(0.3)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=90)
    finally:
        child.kill()
    assert out.splitlines() == ["interrupted True", "[2.0, 2.0]"], out + err
    assert child.returncode == 7, err


@pytest.mark.parametrize("cut", ["torch_spool.sync()", "pass"])
def test_a_process_ends_cleanly_with_work_in_flight_and_work_not_run(cut):
    done = run_program(
        "import torch, torch_spool\n"
        "a = torch.rand(500, 500).to('xla')\n"
        "for _ in range(20):\n"
        "    a = (a @ a) * 1e-3\n"
        f"{cut}\n"
        "b = a.sum() + 1\n"
        "class Holder: pass\n"
        "h = Holder(); h.me = h; h.tensors = [a, b]\n"
        "print('end')\n"
    )
    assert done.stdout == "end\n" and done.stderr == ""


def test_a_failure_that_nobody_has_read_is_shown_when_the_process_ends():
    done = run_program(
        "import torch, torch_spool\n"
        "x = torch.ones(3).to('xla')\n"
        "bad = x.index_select(0, torch.tensor([8]).to('xla'))\n"
        "torch_spool._barrier()\n"
    )
    assert "index_select" in done.stderr


def test_an_exception_that_ends_the_process_with_work_in_flight_is_the_only_thing_shown():
    from helpers import run_python

    done = run_python(
        "-c",
        "import torch, torch_spool\n"
        "with torch_spool.step():\n"
        "    a = torch.rand(300, 300).to('xla') * 2\n"
        "    raise ValueError('mine')\n",
    )
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("ValueError: mine")


FORKED = """
import os, sys, time, torch, torch_spool
x = torch.arange(4.0).to("xla")
torch_spool.sync(wait=True)
{before}
child = os.fork()
if child == 0:
    try:
        y = (torch.ones(2, device="xla") + 1).tolist()
        os._exit(0 if y == [2.0, 2.0] else 3)
    except RuntimeError as error:
        os._exit(0 if "fork" in str(error) else 4)
    except BaseException:
        os._exit(5)
for _ in range(300):
    pid, status = os.waitpid(child, os.WNOHANG)
    if pid:
        break
    time.sleep(0.1)
else:
    os.kill(child, 9)
    sys.exit("the child hangs")
assert os.waitstatus_to_exitcode(status) == 0, os.waitstatus_to_exitcode(status)
assert (x + 1).tolist() == [1.0, 2.0, 3.0, 4.0]
"""


@pytest.mark.parametrize(
    "before",
    ["", "z = x * 3", "z = torch.rand(600, 600).to('xla'); z = z @ z; torch_spool.sync()"],
    ids=["idle", "pending", "running"],
)
def test_the_child_of_a_fork_gets_an_answer_or_a_clear_error_and_the_parent_goes_on(before):
    run_program(FORKED.format(before=before), timeout=60)


def test_dataloader_workers_forked_after_use_give_their_batches():
    run_program(
        "import torch, torch_spool\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "w = torch.ones(3).to('xla') * 2\n"
        "torch_spool.sync()\n"
        "data = TensorDataset(torch.arange(24.0).view(8, 3))\n"
        "total = torch.zeros((), device='xla')\n"
        "for epoch in range(2):\n"
        "    for (batch,) in DataLoader(data, 2, num_workers=2, multiprocessing_context='fork'):\n"
        "        with torch_spool.step():\n"
        "            total += (batch.to('xla') * w).sum()\n"
        "assert total.item() == 2 * 2 * sum(range(24)), total\n",
        timeout=90,
    )


def test_two_threads_record_at_once_and_both_get_their_results(dev):
    results: dict[int, list[torch.Tensor]] = {}

    def work(i: int, device) -> list[torch.Tensor]:
        x = torch.arange(6.0).to(device) + i
        out = []
        for k in range(40):
            x = (x * 1.25 - k).clamp(-50, 50)
            y = x.view(2, 3)
            y[0] += i
            out.append(x.clone())
            if device.type == "xla" and k % (3 + i) == 0:
                torch_spool.sync()
        return out

    def record(i: int) -> None:
        results[i] = work(i, dev)

    threads = [threading.Thread(target=record, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for i in range(2):
        for g, w in zip(results[i], work(i, torch.device("cpu")), strict=True):
            same(g, w)


def test_two_threads_train_two_models_at_once(dev):
    def train(seed: int, device) -> list[torch.Tensor]:
        g = torch.Generator().manual_seed(seed)
        w = torch.randn(8, 5, generator=g).to(device).requires_grad_()
        for _ in range(10):
            x = torch.randn(4, 8, generator=g).to(device)
            ((x @ w).tanh() ** 2).mean().backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
            w.grad = None
            if device.type == "xla":
                torch_spool.sync()
        return [w]

    results: dict[int, list[torch.Tensor]] = {}

    def train_exactly(seed: int) -> None:
        with torch_spool.options(exact=True):  # of this thread
            results[seed] = train(seed, dev)

    threads = [threading.Thread(target=train_exactly, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for i in range(2):
        same(results[i][0], train(i, torch.device("cpu"))[0])


def test_zero_size_and_scalar_tensors_are_no_special_case(dev):
    def program(d):
        e = torch.rand(0, 3).to(d)
        s = torch.tensor(2.5).to(d)
        return [
            e + 1,
            e.sum(),
            e.sum(0),
            e @ ones(3, 2, device=d),
            s * s,
            s.view(1),
            torch.cat([e, ones(1, 3, device=d)]),
        ]

    as_eager(program, dev)

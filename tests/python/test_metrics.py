"""Metrics and counters, under the names that torch_xla has."""

import torch

import torch_spool
from helpers import compiles, count, executions, same
from torch_spool.core import xla_model as xm
from torch_spool.debug import metrics


def test_two_tensors_updated_in_place_and_one_new_result_count_two_aliases(dev):
    a, b = torch.ones(4, device=dev), torch.full((4,), 3.0, device=dev)
    torch_spool.sync(wait=True)
    metrics.clear_all()
    c = a + b
    a *= 2.0
    b += 2.0
    torch_spool.sync(wait=True)
    assert metrics.metric_data("InputOutputAliasCount")[1] == 2
    c = a - b
    a *= 2.0
    b += 2.0
    torch_spool.sync(wait=True)
    assert metrics.metric_data("InputOutputAliasCount")[1] == 4
    same(a, torch.full((4,), 4.0))
    same(b, torch.full((4,), 7.0))
    same(c, torch.full((4,), -3.0))


def test_an_input_that_is_only_read_is_no_alias(dev):
    a = torch.ones(4, device=dev)
    torch_spool.sync(wait=True)
    metrics.clear_all()
    b = a + 1
    torch_spool.sync(wait=True)
    data = metrics.metric_data("InputOutputAliasCount")
    assert data is None or data[1] == 0
    same(b, torch.full((4,), 2.0))


def test_a_graph_is_compiled_at_first_and_then_found_in_the_cache(dev):
    x = torch.ones(3, 17, 2, device=dev)
    torch_spool.sync(wait=True)
    metrics.clear_all()
    for _ in range(4):
        x.mul_(2)
        torch_spool.sync()
    assert executions() == 4
    assert compiles() == count("UncachedCompile") == 1
    assert count("CachedCompile") == 3
    assert metrics.metric_data("CompileTime")[1] > 0
    assert metrics.metric_data("ExecuteTime")[1] > 0


def test_sync_tensors_counts_what_a_cut_gives(dev):
    x = torch.ones(3, device=dev)
    torch_spool.sync(wait=True)
    metrics.clear_all()
    y, z = x + 1, x + 2
    torch_spool.sync(wait=True)
    assert metrics.metric_data("SyncTensors")[1] == 2
    same(y + z, torch.full((3,), 5.0))


def test_moving_data_is_timed_in_both_directions(dev):
    t = torch.ones(3).to(dev)
    torch_spool.sync(wait=True)
    assert metrics.metric_data("TransferToDeviceTime")[0] == 1
    assert metrics.metric_data("TransferFromDeviceTime") is None
    t.cpu()
    assert metrics.metric_data("TransferFromDeviceTime")[0] == 1


def test_an_op_whose_shape_depends_on_data_is_counted_by_its_name(dev):
    x = torch.tensor([0.0, 1.0, 2.0]).to(dev)
    assert metrics.executed_fallback_ops() == []
    same(x.nonzero(), torch.tensor([[1], [2]]))
    assert "aten::nonzero" in metrics.counter_names()
    assert metrics.counter_value("aten::nonzero") == 1
    assert metrics.executed_fallback_ops() == ["aten::nonzero"]


def test_samples_hold_time_and_value(dev):
    kept = torch.ones(3, device=dev)
    torch_spool.sync(wait=True)
    number, total, samples = metrics.metric_data("ExecuteTime")
    assert number == len(samples) == 1
    ((time, value),) = samples
    assert time > 0 and value == total > 0
    same(kept, torch.ones(3))


def test_unknown_names_give_none():
    assert metrics.metric_data("NoSuchMetric") is None
    assert metrics.counter_value("NoSuchCounter") is None


def test_clearing_forgets_counters_metrics_or_both(dev):
    def work() -> None:
        torch.ones(3, device=dev).nonzero()
        torch_spool.sync(wait=True)

    work()
    metrics.clear_counters()
    assert metrics.counter_value("aten::nonzero") is None
    assert metrics.metric_data("ExecuteTime") is not None
    work()
    metrics.clear_metrics()
    assert metrics.counter_value("aten::nonzero") == 1
    assert metrics.metric_data("ExecuteTime") is None
    work()
    metrics.clear_all()
    assert metrics.counter_names() == [] and metrics.metric_names() == []


def test_the_report_is_a_table_of_all_and_the_short_one_of_some(dev):
    torch.ones(3, device=dev).nonzero()
    torch_spool.sync(wait=True)
    report = metrics.metrics_report()
    for name in (*metrics.counter_names(), *metrics.metric_names()):
        assert name in report
    short = metrics.short_metrics_report()
    assert "ExecuteTime" in short and "aten::nonzero" in short
    only = metrics.short_metrics_report(counter_names=["aten::nonzero"], metric_names=[])
    assert "aten::nonzero" in only and "ExecuteTime" not in only
    assert metrics.short_metrics_report(counter_names=[], metric_names=[]) == ""


def test_memory_info_counts_what_lives(dev):
    torch_spool.sync(wait=True)
    before = xm.get_memory_info(dev)
    t = torch.ones(1 << 20, device=dev)
    torch_spool.sync(wait=True)
    during = xm.get_memory_info(dev)
    assert set(during) == {"bytes_used", "bytes_limit", "peak_bytes_used"}
    assert during["bytes_used"] >= before["bytes_used"] + (4 << 20)
    assert during["peak_bytes_used"] >= during["bytes_used"]
    assert during["bytes_limit"] > during["bytes_used"]
    del t
    torch_spool.sync(wait=True)
    assert xm.get_memory_info(dev)["bytes_used"] < during["bytes_used"]

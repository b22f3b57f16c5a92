"""Graphs that one process compiled are loaded by the next."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import torch_spool
from helpers import environment

PROGRAM = """
import json, sys
import torch
import torch_spool
from torch_spool.debug import metrics

folder, readonly, exact = sys.argv[1], sys.argv[2] == "readonly", sys.argv[3:] == ["exact"]
torch_spool.initialize_cache(folder, readonly=readonly)
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.GELU(), torch.nn.Flatten(),
    torch.nn.LayerNorm(16 * 36), torch.nn.Linear(16 * 36, 10),
).to(torch_spool.device())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
x = torch.randn(8, 3, 8, 8).to(torch_spool.device())
y = torch.randint(10, (8,)).to(torch_spool.device())
losses = []
with torch_spool.options(exact=exact):
    for _ in range(3):
        with torch_spool.step():
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
names = ["PersistentCacheHit", "PersistentCacheMiss", "UncachedCompile"]
print(json.dumps({"losses": losses, **{n: metrics.counter_value(n) or 0 for n in names}}))
"""


def run(folder: Path, *options: str) -> tuple[dict, str]:
    """The program's result and what it wrote to stderr."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), *(options or ["write"])],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_second_process_compiles_nothing_and_gives_the_same_numbers(tmp_path):
    first, _ = run(tmp_path)
    assert first["PersistentCacheHit"] == 0 and first["PersistentCacheMiss"] == first["UncachedCompile"] > 0
    second, warnings = run(tmp_path)
    assert second["UncachedCompile"] == 0 and second["PersistentCacheHit"] == first["UncachedCompile"]
    assert second["losses"] == first["losses"]
    assert "ignores" not in warnings


def test_options_are_part_of_the_key(tmp_path):
    run(tmp_path)
    exact, _ = run(tmp_path, "write", "exact")
    assert exact["UncachedCompile"] > 0


def test_torn_and_foreign_files_are_ignored_with_a_warning_and_replaced(tmp_path):
    first, _ = run(tmp_path)
    files = sorted(tmp_path.iterdir())
    for i, file in enumerate(files):
        content = file.read_bytes()
        file.write_bytes(
            content[: len(content) // 2] if i % 2 else b"not ours at all, but long enough to be read"
        )
    second, warnings = run(tmp_path)
    assert "the persistent cache ignores" in warnings
    assert second["losses"] == first["losses"] and second["UncachedCompile"] == first["UncachedCompile"]
    third, warnings = run(tmp_path)
    assert third["UncachedCompile"] == 0 and "ignores" not in warnings


def test_readonly_finds_entries_and_writes_none(tmp_path):
    empty, _ = run(tmp_path, "readonly")
    assert empty["UncachedCompile"] > 0 and not list(tmp_path.iterdir())
    run(tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    full, _ = run(tmp_path, "readonly")
    assert full["UncachedCompile"] == 0
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_processes_may_write_at_the_same_time(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), "write"]
    both = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        for _ in range(2)
    ]
    results = [json.loads(process.communicate(timeout=300)[0]) for process in both]
    assert results[0]["losses"] == results[1]["losses"]
    after, warnings = run(tmp_path)
    assert after["UncachedCompile"] == 0 and "ignores" not in warnings


def test_a_folder_that_cannot_be_one_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"\[initialize_cache\] expected a folder"):
        torch_spool.initialize_cache(tmp_path / "file")

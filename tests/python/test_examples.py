"""The example programs, at a small size."""

import json
import re

import pytest

from helpers import REPOSITORY, run_python

EXAMPLES = REPOSITORY / "examples"


def run_example(name: str, *args: str, cwd, timeout: float = 200, exact: bool = True):
    """With EXACT, plans compute what eager does to the last bit; without, kernels are fused."""
    environment = {"SPOOL_EXACT": "1" if exact else "0"}
    done = run_python(str(EXAMPLES / name), *args, cwd=cwd, timeout=timeout, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.serial
def test_train_resnet_prints_the_same_losses_as_on_the_cpu_and_reads_them_both_ways(tmp_path):
    losses = {}
    for device in ("spool", "cpu"):
        text = run_example(
            "train_resnet.py", "--device", device, "--batch-size", "2", "--image-size", "48",
            "--steps", "3", "--epochs", "1", "--classes", "10", cwd=tmp_path,
        )  # fmt: skip
        losses[device] = re.findall(r"loss (\S+), rate", text)
        assert losses[device] and re.search(r"rate [\d.]+ samples/s", text)
        if device == "spool":
            assert re.findall(r"loss (\S+), read by a step closure", text) == losses["spool"]
    assert losses["spool"] == losses["cpu"]


@pytest.mark.serial
def test_train_digits_is_98_percent_right_with_the_cpus_losses_and_a_checkpoint_that_predicts_the_same(
    tmp_path,
):
    records = {}
    for device in ("spool", "cpu", "fused"):
        folder = tmp_path / device
        folder.mkdir()
        run_example(
            "train_digits.py", "--device", device.replace("fused", "spool"), "--losses", "losses.json",
            cwd=folder, exact=device != "fused",
        )  # fmt: skip
        records[device] = json.loads((folder / "losses.json").read_text())
        assert (folder / "digits_curve.png").read_bytes().startswith(b"\x89PNG")
    assert records["spool"]["losses"] == records["cpu"]["losses"]
    assert records["spool"]["test_accuracy"] == records["cpu"]["test_accuracy"]
    assert records["spool"]["test_accuracy"][-1] >= 0.98
    assert records["fused"]["test_accuracy"][-1] >= 0.98
    for device in ("spool", "cpu"):
        text = run_example(
            "train_digits.py",
            "--device",
            device,
            "--check",
            str(tmp_path / "spool" / "digits.pt"),
            cwd=tmp_path,
        )
        assert "predictions are the same: 360 of 360 agree" in text


def test_the_examples_say_how_they_are_called(tmp_path):
    for name in ("train_resnet.py", "train_digits.py"):
        assert "--device" in run_example(name, "--help", cwd=tmp_path)

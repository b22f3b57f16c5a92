"""Programs of packages that know nothing of Spool train on the lazy device as on the CPU, and stay in their graphs."""

import fcntl
import json
import os
from pathlib import Path

import client_models
import pytest

from helpers import run_python

HERE = Path(__file__).parent
PROGRAMS = ("hf_trainer", "accelerate_loop", "lightning_fit")
ROUNDING = (
    1e-4  # kernels that add up in another order than eager's differ in the last bits, which training spreads
)
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
}


def run_client(*args: str) -> str:
    done = run_python(*args, env=OFFLINE, timeout=400)
    assert done.returncode == 0, f"{' '.join(args)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> dict[str, dict]:
    """What train_models.py reports of all models. Importing the packages takes seconds, so one process trains them all,
    also when several of pytest's workers want the report."""
    folder = tmp_path_factory.getbasetemp()  # of this worker, where there are several; else of this run
    shared = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "trained.json"
    with open(shared.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shared.exists():
            shared.write_text(run_client("-m", "torch_spool", str(HERE / "train_models.py")))
    return json.loads(shared.read_text())


# Batch norm over two images makes of rounding a number of its own; test_examples.py compares that model's losses.
@pytest.mark.parametrize("name", [name for name in client_models.ALL if name != "ResNet-50"])
def test_a_packages_model_trains_to_eagers_losses(trained, name):
    losses = trained[name]["losses"]
    assert len(losses) == 5 and losses[-1] < losses[0]
    assert losses == pytest.approx(trained[name]["eager_losses"], rel=ROUNDING)


@pytest.mark.parametrize("name", client_models.ALL)
def test_a_packages_model_trains_to_eagers_last_bit_with_exact_plans(trained, name):
    assert trained[name]["exact_losses"] == trained[name]["eager_losses"]
    assert trained[name]["differing"] == 0, "parameters, buffers or metrics differ from eager's"


@pytest.mark.parametrize("name", client_models.ALL)
def test_a_packages_training_step_stays_in_its_graph(trained, name):
    for part in ("warm_up", "after"):
        seen = trained[name][part]
        assert seen["recorded"] > 100
        assert [op for op in seen if op.startswith("aten::")] == []
        assert seen["breaks"] <= seen["reads"], "a cut that the program did not ask for"
        assert seen["meta"] == 0, "all shapes are inferred in C++"
    assert trained[name]["after"]["compiles"] == 0
    if name != "BERT, padded":
        assert trained[name]["after"]["breaks"] == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_packages_own_loop_trains_through_the_names_it_looks_for(tmp_path, name):
    program = str(HERE / f"{name}.py")
    eager = json.loads(run_client(program, str(tmp_path / "eager"), "--cpu").splitlines()[-1])
    report = tmp_path / "steps.json"
    watched = (str(HERE / "watch_steps.py"), str(report), program)
    lazy = json.loads(run_client("-m", "torch_spool", *watched, str(tmp_path / "lazy")).splitlines()[-1])
    assert devices(lazy) == {"xla"} and devices(eager) == {"cpu"}
    assert_close(lazy, eager)
    steps = json.loads(report.read_text())
    assert len(steps) >= 9
    for step in steps:
        assert [op for op in step if op.startswith("aten::")] == []
        assert step["meta"] == 0


def parts(outcome: dict | list[dict]) -> list[dict]:
    return outcome if isinstance(outcome, list) else [outcome]


def devices(outcome: dict | list[dict]) -> set[str]:
    return {part["device"] for part in parts(outcome)}


def assert_close(lazy: dict | list[dict], eager: dict | list[dict]) -> None:
    for got, want in zip(parts(lazy), parts(eager), strict=True):
        assert got.keys() == want.keys()
        for key in got.keys() - {"device"}:
            assert got[key] == pytest.approx(want[key], rel=ROUNDING, abs=1e-6), key

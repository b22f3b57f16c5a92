"""The reference engine, which runs a graph op by op, trains the same programs to the same bits."""

from pathlib import Path

import pytest

from helpers import run_program, run_python


@pytest.mark.serial
def test_the_training_programs_equal_eager_on_the_reference_engine():
    here = Path(__file__).parent
    done = run_python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", str(here / "test_train.py"), str(here / "test_views.py"),
        env={"SPOOL_ENGINE": "reference"}, timeout=200, cwd=here,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.parametrize("name", ["native", "reference"])
def test_the_engine_is_the_one_that_the_environment_names(name):
    run_program(
        "from torch_spool import _C\n"
        f"assert _C.engine_name() == {name!r}, _C.engine_name()\n"
        "import torch\n"
        "assert (torch.ones(2, device='xla') + 1).tolist() == [2.0, 2.0]\n",
        env={"SPOOL_ENGINE": name},
    )


def test_an_unknown_engine_is_refused_with_the_names_of_the_known_ones():
    done = run_python(
        "-c",
        "import torch, torch_spool\n(torch.ones(2, device='xla') + 1).tolist()",
        env={"SPOOL_ENGINE": "steam"},
    )
    assert done.returncode != 0
    assert "steam" in done.stderr and "native" in done.stderr and "reference" in done.stderr

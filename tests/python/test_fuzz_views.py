"""Random programs on views and writes give what eager gives, bit for bit, wherever they are cut.

CI runs PROGRAMS of them; `--full-fuzz` or SPOOL_FULL_FUZZ=1 (which `./dev test --full` sets) FULL, in chunks of CHUNK. A failure prints
the smallest program that hypothesis finds; it becomes a test in test_fuzz_found.py.
"""

import warnings

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

import torch_spool
from fuzz_programs import difference, programs, run

PROGRAMS = 300
FULL = 20_000
CHUNK = 1_000


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "chunk" in metafunc.fixturenames:
        full = metafunc.config.getoption("full_fuzz")
        metafunc.parametrize("chunk", range(FULL // CHUNK) if full else [0])


def check(lines: list[str], device: torch.device) -> None:
    """The program does on DEVICE what it does on the CPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wrong = difference(run(lines, device), run(lines, torch.device("cpu"), cuts=False))
            torch_spool.sync(wait=True)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
    assert wrong is None, "\n".join(["this program:", *(f"    {line}" for line in lines), wrong])


def test_random_programs_on_views_give_eagers_values(
    chunk: int, request: pytest.FixtureRequest, dev: torch.device
) -> None:
    examples = CHUNK if request.config.getoption("full_fuzz") else PROGRAMS

    @seed(chunk)
    @settings(
        max_examples=examples, deadline=None, database=None, phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    @given(programs())
    def programs_agree(lines: list[str]) -> None:
        check(lines, dev)

    programs_agree()


def test_a_wrong_value_is_found(dev: torch.device) -> None:
    with pytest.raises(AssertionError, match="holds"):
        check(["a = torch.zeros(3, device=d) + (d.type == 'xla')"], dev)
    with pytest.raises(AssertionError, match="said"):
        check(["seen(1 if d.type == 'xla' else 2)"], dev)

"""Random programs of fused ops are as near to float64 as eager is; fused or not, on either engine.

CI runs PROGRAMS of them; `--full-fuzz` or SPOOL_FULL_FUZZ=1 FULL, in chunks of CHUNK. A failure prints the smallest program that
hypothesis finds; it becomes a case of `test_programs_that_once_failed`.
"""

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

import torch_spool
from fuzz_fusion import Program, difference, programs, run

PROGRAMS = 60
FULL = 10_000
CHUNK = 500


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "chunk" in metafunc.fixturenames:
        full = metafunc.config.getoption("full_fuzz")
        metafunc.parametrize("chunk", range(FULL // CHUNK) if full else [0])


def check(program: Program) -> None:
    try:
        got = run(program, "xla", program.dtype)
        torch_spool.sync(wait=True)
        wrong = difference(got, run(program, "cpu", program.dtype), run(program, "cpu", torch.float64))
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
    assert wrong is None, f"this program:\n{program}\n{wrong}"


def test_random_programs_are_as_near_to_float64_as_eager(chunk: int, request: pytest.FixtureRequest) -> None:
    @seed(chunk)
    @settings(
        max_examples=CHUNK if request.config.getoption("full_fuzz") else PROGRAMS,
        deadline=None, database=None, phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    @given(programs())
    def programs_agree(program: Program) -> None:
        check(program)

    programs_agree()


def test_a_wrong_value_is_found() -> None:
    program = Program(["t1 = t0 + (t0.device.type == 'xla') * 1e-3"], [(3,)], torch.float32, ["t1"], False)
    with pytest.raises(AssertionError, match="off by"):
        check(program)

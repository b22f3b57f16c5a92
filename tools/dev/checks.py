"""The checks of ./dev: tests (ctest and pytest), layers, formatting, clang-tidy and ruff."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import setup
from build import MODULE, SANITIZERS, build, default_jobs
from say import ROOT, Stop, run, run_and_keep, say, show

PYTEST_DONE = re.compile(
    r"\b\d+ (passed|failed|errors?|skipped|xfailed|deselected)\b.* in [\d.]+s|^=* ?no tests ran"
)
CTEST_DONE = re.compile(r"^\d+% tests passed\b|^No tests were found")
NO_TESTS = 5  # pytest's exit status when it selected none
CPP_FILES = ["*.h", "*.cpp", "*.cc"]
# A dependency's headers are not ours to mend.
TIDY_FOLDERS = ("src", "include", "python", "tests", "bench", "examples")


def test(preset: str, cpp: bool, python: bool, full: bool, pytest_args: list[str]) -> None:
    """Builds, runs what is asked for, repeats the closing lines at the end, and stops if anything failed."""
    if preset in SANITIZERS and python:
        say(f"the Python tests do not run under {preset}: a sanitizer must be in the process from its start")
        python = False
    build(preset, targets=[] if cpp else MODULE)
    env = _test_environment(preset)
    if full:
        env["SPOOL_FULL_OPS"] = "1"  # tests/python/test_ops.py: all dtypes of all ops
        env["SPOOL_FULL_FUZZ"] = "1"  # tests/python/test_fuzz_views.py: 20 000 programs
    closing: list[str] = []
    failed: list[str] = []

    def note(what: str, code: int, last: str | None) -> None:
        closing.append(last or f"{what}: no closing line, exit status {code}")
        if code != 0:
            failed.append(what)

    if cpp:
        command = [setup.VENV / "bin" / "ctest", "--preset", preset, "-j", str(default_jobs())]
        command += ["--no-tests=error"] + ([] if full else ["-LE", "slow"])
        note("ctest", *run_and_keep(command, env, CTEST_DONE))
    if python and pytest_args:
        note("pytest", *run_and_keep(_pytest(*pytest_args), env, PYTEST_DONE))
    elif python:
        speed = "" if full else " and not slow"
        parallel = _pytest("-n", "2", "-m", f"not serial{speed}", "tests/python")
        note("pytest", *run_and_keep(parallel, env, PYTEST_DONE))
        alone = _pytest("-m", f"serial{speed}", "tests/python")
        code, last = run_and_keep(alone, env, PYTEST_DONE)
        if code != NO_TESTS:
            note("pytest (serial)", code, last)
    code = _check_layers()
    if code != 0:
        failed.append("check_layers")
    print()
    for line in closing:
        print(line)
    sys.stdout.flush()
    if failed:
        raise Stop(f"failed: {', '.join(failed)}")


def docs() -> None:
    """Runs the code of the pages in docs/ as tests."""
    build(targets=MODULE)
    run(_pytest("tests/python/test_docs.py"), env=_test_environment("release"))


def lint(fix: bool, tidy: bool, paths: list[str]) -> None:
    """Formatting, clang-tidy, ruff and the layers; every finding is an error, and all are shown before it stops."""
    setup.prepare()
    setup.apt_install(setup.LINT_PACKAGES)
    files = _tracked(CPP_FILES, paths)
    python = _tracked(["*.py"], paths)
    env = setup.environment()
    ruff = [setup.VENV / "bin" / "ruff"]
    checks = []
    if files:
        style = ["-i"] if fix else ["--dry-run", "-Werror"]
        checks.append(("clang-format", ["clang-format-19", *style, *files]))
    if python:
        checks.append(("ruff check", [*ruff, "check", *(["--fix"] if fix else []), *python]))
        checks.append(("ruff format", [*ruff, "format", *([] if fix else ["--check"]), *python]))
    failed = [name for name, command in checks if _fails(command, env)]
    if _check_layers() != 0:
        failed.append("check_layers")
    if tidy and files and not _clang_tidy(files, env):
        failed.append("clang-tidy")
    if failed:
        raise Stop(f"failed: {', '.join(failed)}" + ("" if fix else " (./dev lint --fix mends some)"))
    say(f"lint: {len(files)} C++ and {len(python)} Python files are clean")


def _pytest(*args: str) -> list[str]:
    colour = ["--color=yes"] if sys.stdout.isatty() else []
    return [str(setup.PYTHON), "-m", "pytest", *colour, *args]


def _test_environment(preset: str) -> dict[str, str]:
    env = setup.environment()
    env["PYTHONUNBUFFERED"] = "1"  # the output goes through a pipe and should show at once
    # PyTorch keeps memory of its own until the process ends, which is no leak of ours.
    env.setdefault("ASAN_OPTIONS", "detect_leaks=0")
    env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1")
    if preset == "tsan":
        # PyTorch and its thread pool are not instrumented: their locks are invisible to the sanitizer.
        env.setdefault("TSAN_OPTIONS", "ignore_noninstrumented_modules=1")
        env.setdefault("OMP_NUM_THREADS", "1")
    return env


def _check_layers() -> int:
    command = [sys.executable, ROOT / "tools" / "check_layers.py"]
    say("$ " + show(command))
    return subprocess.run(command, cwd=ROOT).returncode


def _tracked(patterns: list[str], paths: list[str]) -> list[str]:
    """Files of the checkout that git tracks or would, of these patterns and below these paths."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *paths]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise Stop(f"expected a git checkout to list its files: {done.stderr.strip()}")
    names = [Path(line) for line in done.stdout.splitlines()]
    picked = {str(n) for n in names for p in patterns if n.match(p) and (ROOT / n).is_file()}
    return sorted(picked)


def _fails(command: list, env: dict[str, str]) -> bool:
    say(f"$ {show(command[:3])} … ({len(command)} arguments)")
    return subprocess.run([str(part) for part in command], cwd=ROOT, env=env).returncode != 0


def _clang_tidy(files: list[str], env: dict[str, str]) -> bool:
    """clang-tidy over those of the files that the build compiles. True when there are no findings."""
    build()  # for what it generates
    database = json.loads((ROOT / "build" / "release" / "compile_commands.json").read_text())
    compiled = {os.path.relpath(os.path.join(e["directory"], e["file"]), ROOT) for e in database}
    wanted = [f for f in files if f in compiled and f.startswith(TIDY_FOLDERS)]
    say(f"clang-tidy over {len(wanted)} files")

    def check(file: str) -> bool:
        command = ["clang-tidy-19", "--quiet", "-p", "build/release", file]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stdout or done.stderr, flush=True)
        return done.returncode == 0

    with ThreadPoolExecutor(default_jobs()) as pool:
        return all(list(pool.map(check, wanted)))

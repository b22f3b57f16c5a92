"""Configures and builds one of the presets of CMakePresets.json, doing only what is out of date."""

import hashlib
import os
from pathlib import Path

import setup
from say import ROOT, run, say

PRESETS = ["release", "dev", "asan", "tsan"]
SANITIZERS = {"asan", "tsan"}  # their module stays in the build folder
MODULE = ["_C"]  # the target of the extension module and, through it, of libspool: all that Python needs
PACKAGE = ROOT / "python" / "torch_spool"


def build(preset: str = "release", targets: list[str] = (), jobs: int | None = None) -> None:
    """Sets the machine up if need be, then builds the targets (default: all) of a preset."""
    setup.prepare()
    env = setup.environment()
    folder = ROOT / "build" / preset
    _configure(preset, folder, env)
    if preset not in SANITIZERS:
        _clear_module_of_other_preset(preset)
    ninja = setup.VENV / "bin" / "ninja"
    run([ninja, "-C", folder, "-j", str(jobs or default_jobs()), *targets], env=env)


def default_jobs() -> int:
    """As many compilers as there are cores, and no more than memory has room for: torch's headers take 2 GB each."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // 2**31))


def _configure(preset: str, folder: Path, env: dict[str, str]) -> None:
    # Ninja itself runs CMake again when a CMakeLists.txt changes; what it cannot see is in this stamp.
    parts = [
        (ROOT / "CMakePresets.json").read_text(),
        setup.REQUIREMENTS.read_text(),
        str(setup.PYTHON),
        env.get("CXX", ""),
        env.get("CXXFLAGS", ""),
    ]
    stamp = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    stamp_file = folder / ".spool-configured"
    ready = (folder / "build.ninja").exists() and stamp_file.exists()
    if ready and stamp_file.read_text() == stamp:
        return
    say(f"configuring build/{preset}")
    command = [setup.VENV / "bin" / "cmake", "--preset", preset]
    if (folder / "CMakeCache.txt").exists():
        command.append("--fresh")
    run([*command, f"-DPython3_EXECUTABLE={setup.PYTHON}"], env=env)
    stamp_file.write_text(stamp)


def _clear_module_of_other_preset(preset: str) -> None:
    """Presets without sanitizers put the extension module and libspool into the package, where Python finds them.

    Ninja judges by time stamps alone, so it would take another preset's newer files for its own.
    """
    owner = ROOT / "build" / ".module-preset"
    if owner.exists() and owner.read_text() != preset:
        for library in PACKAGE.rglob("*.so*"):
            library.unlink()
    owner.parent.mkdir(exist_ok=True)
    owner.write_text(preset)

"""Makes a fresh machine ready: system packages, and .venv with the pinned requirements."""

import fcntl
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from contextlib import contextmanager
from pathlib import Path

from say import ROOT, Stop, run, say

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = ROOT / "requirements.txt"

# What apt installs, for Debian 12 and Ubuntu 24.04. Other systems: the same by their own names.
BUILD_PACKAGES = ["llvm-19-dev", "libgtest-dev", "libbenchmark-dev", "libcli11-dev", "ccache"]
LINT_PACKAGES = ["clang-format-19", "clang-tidy-19"]


def prepare() -> None:
    """Everything that building and running need. Takes a second when nothing is to be done."""
    if sys.platform != "linux":
        say(f"{sys.platform} is untested; Debian 12 and Ubuntu 24.04 are what ./dev is made for")
    with _one_at_a_time():
        ready = _venv_works()
        apt_install(BUILD_PACKAGES + _compiler_package() + ([] if ready else _python_packages()))
        if not ready:
            _make_venv()
        _install_requirements()


def environment() -> dict[str, str]:
    """The environment in which everything runs: the venv's programs first, and the package of this checkout."""
    env = dict(os.environ)
    env["VIRTUAL_ENV"] = str(VENV)
    env["PATH"] = f"{VENV / 'bin'}{os.pathsep}{env.get('PATH', os.defpath)}"
    package = str(ROOT / "python")
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [package, env.get("PYTHONPATH")]))
    env.pop("PYTHONHOME", None)
    return env


def apt_install(packages: list[str]) -> None:
    """Installs those of the packages that are missing; where it cannot, says how to and goes on."""
    missing = [name for name in packages if not _apt_has(name)]
    if not missing:
        return
    apt = shutil.which("apt-get")
    as_root = [] if os.geteuid() == 0 else [shutil.which("sudo")]
    if apt is None or None in as_root:
        why = "there is no apt-get" if apt is None else "we are not root and there is no sudo"
        say(f"cannot install {' '.join(missing)}: {why}. Install them by hand if the build misses them:")
        say(f"    apt-get install {' '.join(missing)}")
        return
    say(f"installing system packages: {' '.join(missing)}")
    quiet = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", apt, "-qq"]
    try:
        run([*quiet, "update"])
    except Stop as stop:  # one broken source among many need not keep the packages from us
        say(f"{stop}; trying with the package lists that are there")
    run([*quiet, "-o=Dpkg::Use-Pty=0", "install", "-y", "--no-install-recommends", *missing], silent=True)


@contextmanager
def _one_at_a_time():
    """Two ./dev at once must not both fill .venv: the second waits for the first."""
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build" / ".setup.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another ./dev is setting up; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _apt_has(package: str) -> bool:
    dpkg = shutil.which("dpkg-query")
    if dpkg is None:
        return False
    done = subprocess.run([dpkg, "-W", "-f=${db:Status-Status}", package], capture_output=True, text=True)
    return done.stdout.strip() == "installed"


def _compiler_package() -> list[str]:
    names = [os.environ.get("CXX"), "c++", "g++", "clang++"]
    return [] if any(name and shutil.which(name) for name in names) else ["g++"]


def _python_packages() -> list[str]:
    """Debian and Ubuntu ship Python without venv and without the headers that the extension module needs."""
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return ([] if importlib.util.find_spec("ensurepip") else ["python3-venv"]) + (
        [] if headers.exists() else ["python3-dev"]
    )


def _venv_works() -> bool:
    # A venv does not survive being moved, so the stamp holds where it was made.
    return _stamp_of("venv") == str(VENV) and PYTHON.exists() and _quiet([PYTHON, "-c", "import pip"])


def _make_venv() -> None:
    if VENV.is_symlink():
        raise Stop(
            f"expected .venv to be a folder that ./dev may replace, but it links to {VENV.resolve()}; remove it"
        )
    say(f"making .venv with Python {platform.python_version()} ({sys.executable})")
    run([sys.executable, "-m", "venv", "--clear", VENV])
    _write_stamp("venv", str(VENV))


def _install_requirements() -> None:
    text = REQUIREMENTS.read_text()
    wanted = hashlib.sha256(text.encode()).hexdigest()
    if _stamp_of("requirements") == wanted:
        return
    pins = [line.strip() for line in text.splitlines() if line.strip() and line[0] != "#"]
    torch = next(line for line in pins if line.startswith("torch=="))
    pip = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    say("installing Python packages into .venv; PyTorch is some 200 MB, so this takes minutes")
    _install_torch(pip, torch)
    run([*pip, "-r", REQUIREMENTS])
    _write_stamp("requirements", wanted)


def _install_torch(pip: list, torch: str) -> None:
    """The CPU build from the places that pip knows, else whatever build pip finds."""
    if sys.platform == "linux":
        if _quiet([*pip, f"{torch}+cpu"]):
            say(f"installed {torch}+cpu")
            return
        say(
            f"{torch}+cpu is not where pip looks (PIP_EXTRA_INDEX_URL can name PyTorch's index of CPU builds); "
            f"taking {torch} as pip finds it, which may bring CUDA's libraries"
        )
    run([*pip, torch])


def _quiet(command: list) -> bool:
    return subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True).returncode == 0


def _stamp_of(name: str) -> str:
    try:
        return (VENV / f".spool-{name}").read_text()
    except FileNotFoundError:
        return ""


def _write_stamp(name: str, content: str) -> None:
    (VENV / f".spool-{name}").write_text(content)

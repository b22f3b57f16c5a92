"""How ./dev speaks: what it does, what it runs, and how it stops."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Stop(Exception):
    """Ends ./dev with a message and no traceback."""


def say(text: str) -> None:
    print(f"[dev] {text}", file=sys.stderr, flush=True)


def show(command: Sequence[str | Path]) -> str:
    """The command as one would type it in the checkout."""
    return shlex.join(str(part).replace(f"{ROOT}/", "") for part in command)


def run(command: Sequence[str | Path], env: dict[str, str] | None = None, silent: bool = False) -> None:
    """Says what it runs, runs it in the checkout, and stops when it fails.

    With `silent`, what the command prints is shown only if it fails.
    """
    say("$ " + show(command))
    where = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if silent else {}
    done = subprocess.run([str(part) for part in command], cwd=ROOT, env=env, **where)
    if done.returncode != 0:
        if silent:
            sys.stderr.buffer.write(done.stdout)
        raise Stop(f"failed with exit status {done.returncode}: {show(command)}")


def run_and_keep(
    command: Sequence[str | Path], env: dict[str, str], keep: re.Pattern
) -> tuple[int, str | None]:
    """Runs a command, showing its output as it comes.

    Returns its exit status and the last line in which `keep` is found, colours aside, if there was one.
    """
    say("$ " + show(command))
    kept = None
    with subprocess.Popen(
        [str(part) for part in command],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            for line in process.stdout:
                sys.stdout.write(line)
                sys.stdout.flush()
                if keep.search(COLOUR.sub("", line)):
                    kept = line.rstrip()
        except KeyboardInterrupt:
            process.wait()  # the child got the signal as well; let it say its last words
            raise
    return process.returncode, kept


def hand_over(command: Sequence[str | Path], env: dict[str, str]) -> None:
    """Replaces this process by the command, so that signals and exit status are the command's own."""
    say("$ " + show(command))
    os.chdir(ROOT)
    sys.stdout.flush()
    os.execvpe(str(command[0]), [str(part) for part in command], env)

"""Runs a program that knows nothing of Spool and writes what happened from one optimiser's step to the next, as JSON.

usage: python -m torch_spool watch_steps.py REPORT PROGRAM [ARGUMENT …]
"""

import json
import runpy
import sys
from pathlib import Path

from events import events, since
from torch.optim.optimizer import register_optimizer_step_post_hook


def main() -> None:
    report, program = sys.argv[1:3]
    sys.argv = sys.argv[2:]
    steps: list[dict[str, int]] = []
    before = events()

    def note(*_: object) -> None:
        nonlocal before
        steps.append(since(before))
        before = events()

    hook = register_optimizer_step_post_hook(note)
    runpy.run_path(program, run_name="__main__")
    hook.remove()
    Path(report).write_text(json.dumps(steps))


if __name__ == "__main__":
    main()

"""`python -m torch_spool script.py …`: run a program written for torch_xla."""

import argparse
import os
import runpy
import sys

from . import compat

_EPILOG = """\
examples:
  python -m torch_spool train.py --epochs 3
  python -m torch_spool -m package.train --epochs 3

`import torch_xla` (and torch_xla.core.xla_model, torch_xla.debug.metrics, …)
resolves to Spool in the program; processes that it starts are not affected.
"""


def main(argv: list[str]) -> None:
    """Run the program that ARGV names, with the arguments after its name."""
    parser = argparse.ArgumentParser(
        prog="python -m torch_spool",
        description="Run a program written for torch_xla on Spool, unchanged.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-m", dest="module", action="store_true", help="PROGRAM is a module's name, not a file"
    )
    parser.add_argument("program", help="the script to run, or a module's name with -m")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="arguments for the program")
    options = parser.parse_args(argv)
    compat.install()
    sys.argv = [options.program, *options.args]
    if options.module:
        runpy.run_module(options.program, run_name="__main__", alter_sys=True)
        return
    if not os.path.isfile(options.program):
        parser.error(f"expected a Python script, got {options.program!r}: no such file")
    if not sys.flags.safe_path:  # as `python script.py` has it: the script's folder first
        sys.path[0] = os.path.dirname(os.path.abspath(options.program))
    runpy.run_path(options.program, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])

"""The commands of ./dev. Each sets up what it needs first: venv, system packages, the build."""

import argparse
import os
import sys

import checks
import setup
from build import MODULE, PRESETS, build
from say import ROOT, Stop, hand_over, run, say

TRAINING = ROOT / "examples" / "train_resnet.py"
# In bench/, these are what the benchmarks share, and what makes the README's table of their results.
NOT_BENCHMARKS = {"report", "common"}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="./dev",
        description="Sets up, builds, runs and checks Spool. The first call prepares everything "
        "(.venv, pinned Python packages, system packages, the build); later calls do only what is out of date.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, help: str, **more) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=help,
            description=help[0].upper() + help[1:] + ".",
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **more,
        )
        return sub

    def preset(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("--preset", choices=PRESETS, default="release", help="default: release")

    command(
        "train",
        "build, then train ResNet-50 on fake data (examples/train_resnet.py)",
        usage="./dev train [--help] [options of the example]",
        epilog="All options go to the example; `./dev train -- --help` lists them. For instance:\n"
        "  ./dev train --steps 100 --batch-size 16\n"
        "  ./dev train --device cpu",
    )

    sub = command(
        "test",
        "build, run the C++ and the Python tests and the layer check",
        usage="./dev test [--help] [--full] [--cpp | --python] [--preset PRESET] [pytest arguments]",
        epilog="Arguments that are not listed here go to pytest, and then only pytest is run:\n"
        "  ./dev test tests/python/test_step.py -k exception",
    )
    sub.add_argument(
        "--full", action="store_true", help="also the tests marked slow, and all dtypes of all ops"
    )
    only = sub.add_mutually_exclusive_group()
    only.add_argument("--cpp", action="store_true", help="only the C++ tests (ctest)")
    only.add_argument("--python", action="store_true", help="only the Python tests (pytest)")
    preset(sub)

    sub = command("build", "configure and build")
    sub.add_argument("targets", nargs="*", metavar="TARGET", help="default: everything")
    preset(sub)
    sub.add_argument("--jobs", "-j", type=int, help="compilers at once; default: as many as fit")

    sub = command(
        "bench",
        "build, then measure Spool against its peers (bench/*.py)",
        usage="./dev bench [--help] [--list] [--readme] [NAME …] [options of the benchmarks]",
        epilog="Other options go to the benchmarks: `./dev bench recorder --quick`.",
    )
    sub.add_argument(
        "names", nargs="*", metavar="NAME", help="which; default: all, and a table of all figures"
    )
    sub.add_argument("--list", action="store_true", help="only list their names")
    sub.add_argument("--readme", action="store_true", help="run all and put the table into README.md")

    sub = command("lint", "check formatting (clang-format, ruff), clang-tidy, ruff's rules and layers")
    sub.add_argument("paths", nargs="*", metavar="PATH", help="files or folders; default: all")
    sub.add_argument("--fix", action="store_true", help="rewrite what can be mended without thought")
    sub.add_argument("--no-tidy", action="store_true", help="leave out clang-tidy, which takes minutes")

    command("docs", "build, then run the code of the pages in docs/ as tests")

    sub = command(
        "shell",
        "open a shell in which python, cmake and torch_spool are those of this checkout",
        usage="./dev shell [--help] [COMMAND …]",
        epilog="With a command, runs that instead:\n  ./dev shell python -c 'import torch_spool'",
    )
    sub.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND", help="what to run")
    return top


def train(args: argparse.Namespace, rest: list[str]) -> None:
    build(targets=MODULE)
    hand_over([setup.PYTHON, TRAINING, *rest], setup.environment())


def test(args: argparse.Namespace, rest: list[str]) -> None:
    python_only = args.python or bool(rest)
    if rest and args.cpp:
        raise Stop(f"expected no pytest arguments beside --cpp, got: {' '.join(rest)}")
    checks.test(args.preset, not python_only, not args.cpp, args.full, rest)


def bench(args: argparse.Namespace, rest: list[str]) -> None:
    files = {
        file.stem: file for file in sorted((ROOT / "bench").glob("*.py")) if file.stem not in NOT_BENCHMARKS
    }
    if args.list:
        print("\n".join(files))
        return
    if unknown := [name for name in args.names if name not in files]:
        raise Stop(f"expected names of benchmarks ({', '.join(files)}), got {', '.join(unknown)}")
    if args.names and args.readme:
        raise Stop("expected --readme alone: the table has the figures of all benchmarks")
    build(targets=MODULE)
    env = setup.environment()
    if not args.names:
        report = ["bench/report.py", *(["--readme"] if args.readme else []), *rest]
        hand_over([setup.PYTHON, *report], env)
    for name in args.names:
        run([setup.PYTHON, files[name], *rest], env=env)


def shell(words: list[str]) -> None:
    build(targets=MODULE)
    env = setup.environment()
    words = words[1:] if words[:1] == ["--"] else words
    if not words:
        say("`exit` leaves this shell")
        words = [os.environ.get("SHELL", "/bin/bash")]
    hand_over(words, env)


def main() -> None:
    top = parser()
    args, rest = top.parse_known_args()
    if rest and args.command not in ("train", "test", "bench"):
        top.error(f"{args.command}: unknown arguments: {' '.join(rest)}")
    rest = rest[1:] if rest[:1] == ["--"] else rest
    match args.command:
        case "train":
            train(args, rest)
        case "test":
            test(args, rest)
        case "build":
            build(args.preset, args.targets, args.jobs)
        case "bench":
            bench(args, rest)
        case "lint":
            checks.lint(args.fix, not args.no_tidy, args.paths)
        case "docs":
            checks.docs()
        case "shell":
            shell(args.words)


if __name__ == "__main__":
    try:
        main()
    except Stop as stop:
        say(str(stop))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)

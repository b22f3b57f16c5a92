#!/usr/bin/env python
"""Run all benchmarks and print their figures as one Markdown table.

With --from DIR, results that were written there by an earlier run (DIR/<benchmark>.json) are read instead.
With --readme, the table replaces what stands between the figure marks in README.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tqdm import tqdm

import common

BENCHMARKS = ("recorder", "mlp_step", "resnet50", "steady", "coverage", "import_time")
BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"


def run_all(folder: Path, quick: bool) -> None:
    """Run every benchmark, one after another, each writing its JSON to FOLDER."""
    bar = tqdm(BENCHMARKS, unit="benchmark")
    for name in bar:
        bar.set_description(name)
        line = [sys.executable, str(common.BENCH / f"{name}.py"), "--json", str(folder / f"{name}.json")]
        done = subprocess.run(line + ["--quick"] * quick, check=False)
        if done.returncode != 0:
            raise RuntimeError(
                f"[bench/report] expected {name} to end with status 0, got {done.returncode}; "
                "its own message stands above"
            )


def read_all(folder: Path) -> list[dict[str, Any]]:
    """The results in FOLDER, in the table's order."""
    missing = [name for name in BENCHMARKS if not (folder / f"{name}.json").exists()]
    if missing:
        raise FileNotFoundError(
            f"[bench/report] expected a result of each benchmark in {folder}, "
            f"found none of {', '.join(missing)}; "
            f"write it with: python bench/{missing[0]}.py --json {folder / missing[0]}.json"
        )
    return [json.loads((folder / f"{name}.json").read_text()) for name in BENCHMARKS]


def markdown(results: list[dict[str, Any]]) -> str:
    """One table of all figures, and a line on where they were measured."""
    lines = ["| figure | target | measured | command |", "| --- | --- | --- | --- |"]
    for result in results:
        for row in result["figures"]:
            figure = common.Figure(**{key: value for key, value in row.items() if key != "met"})
            measured = common.quantity(figure.measured, figure.unit) + ("" if figure.met else " (missed)")
            lines.append(f"| {figure.name} | {figure.target} | {measured} | `{result['command']}` |")
    seen = {json.dumps(result["machine"], sort_keys=True): result["machine"] for result in results}
    lines.append("")
    for machine in seen.values():
        lines.append(
            f"Measured on {machine['processor']}, {machine['cores']} cores, {machine['threads']} threads, "
            f"PyTorch {machine['torch']}, Python {machine['python']}."
        )
    if any(result["quick"] for result in results):
        lines.append("Some of it with `--quick`, whose sizes are too small for the figures to mean much.")
    return "\n".join(lines)


def put_into(readme: Path, table: str) -> None:
    """Replace what stands between the marks of README by TABLE."""
    text = readme.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(
            f"[bench/report] expected one {BEGIN} before one {END} in {readme.name}, found otherwise; "
            "add both, each on a line of its own"
        )
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    readme.write_text(f"{head}{BEGIN}\n{table}\n{END}{tail}")
    print(f"table written to {readme.name}")


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument(
        "--from", dest="folder", type=Path, metavar="DIR", help="read results from DIR and run nothing"
    )
    cli.add_argument("--save", type=Path, metavar="DIR", help="keep the results of this run in DIR")
    cli.add_argument("--readme", action="store_true", help="put the table into README.md")
    cli.add_argument("--quick", action="store_true", help="small, short runs: shows that they work")
    args = cli.parse_args()
    if args.folder:
        if args.save or args.quick:
            cli.error("--from runs nothing, so that --save and --quick say nothing beside it")
        results = read_all(args.folder)
    elif args.save:
        args.save.mkdir(parents=True, exist_ok=True)
        run_all(args.save, args.quick)
        results = read_all(args.save)
    else:
        with tempfile.TemporaryDirectory() as folder:
            run_all(Path(folder), args.quick)
            results = read_all(Path(folder))
    table = markdown(results)
    print(f"\n{table}")
    if args.readme:
        put_into(common.ROOT / "README.md", table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

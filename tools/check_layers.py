#!/usr/bin/env python3
"""Checks which headers each layer of the sources includes.

The core (src/base, tape, graph, ops, passes, cache, runtime and the files directly in src/engine) includes no
header of PyTorch, LLVM, PJRT or Python, and none of our own that lies outside the core. Only src/engine/native
includes LLVM or oneDNN, only src/engine/pjrt includes PJRT, only python/ and tests/ include pybind11. Of src/, only
src/base reads environment variables.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOTS = ["src", "include", "python", "tests", "bench", "examples"]
CORE = ["base", "tape", "graph", "ops", "passes", "cache", "runtime"]
SUFFIXES = {".h", ".hpp", ".cpp", ".cc", ".inc", ".def"}

FAMILIES = {
    "torch": re.compile(r"^(torch|ATen|c10|caffe2)/"),
    "LLVM": re.compile(r"^(llvm|llvm-c|clang|mlir)/"),
    "oneDNN": re.compile(r"^(oneapi/dnnl/|dnnl)"),
    "PJRT": re.compile(r"(^|/)pjrt_c_api|^(xla|tsl)/"),
    "Python": re.compile(r"^(pybind11/|Python\.h$)"),
}
# For each family, the folders that may include it. A path is judged by its beginning.
ALLOWED = {
    "torch": [
        *["src/torch/", "src/engine/aten/", "src/engine/reference/", "src/engine/native/"],
        *["include/", "python/", "tests/", "bench/", "examples/"],
    ],
    "LLVM": ["src/engine/native/"],
    "oneDNN": ["src/engine/native/"],
    "PJRT": ["src/engine/pjrt/"],
    "Python": ["python/", "tests/"],
}
OUTSIDE_CORE = re.compile(r"^(src/)?(torch|engine/[^/]+)/|^(include/)?spool/")

INCLUDE = re.compile(r"^\s*#\s*(?:include|include_next|import)\s*(\S.*)")
NAMED = re.compile(r'[<"]([^>"]+)[>"]')
HAS_INCLUDE = re.compile(r'__has_include\s*\(\s*[<"]([^>"]+)[>"]')
GETENV = re.compile(r"\b(secure_)?getenv\s*\(")
# String literals are matched so that a comment's mark inside one is not taken for a comment.
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)


@dataclass(frozen=True)
class Finding:
    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def is_core(path: str) -> bool:
    """Whether a path relative to the checkout lies in the core."""
    parts = path.split("/")
    if parts[0] != "src" or len(parts) < 3:
        return False
    return parts[1] in CORE or (parts[1] == "engine" and len(parts) == 3)


def without_comments(text: str) -> str:
    """The text with comments blanked, line numbers kept."""

    def blank(match: re.Match) -> str:
        found = match.group(0)
        return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)

    return COMMENT_OR_STRING.sub(blank, text)


def check_text(path: str, text: str) -> list[Finding]:
    """The findings in one file; `path` is relative to the checkout."""
    findings = []
    for number, line in enumerate(without_comments(text).splitlines(), start=1):
        headers = HAS_INCLUDE.findall(line)
        if include := INCLUDE.match(line):
            named = NAMED.match(include.group(1))
            if named:
                headers.append(named.group(1))
            elif is_core(path):
                findings.append(Finding(path, number, "the core includes headers by name, not by macro"))
        findings += [Finding(path, number, m) for h in headers if (m := judge(path, h))]
        ours = path.startswith("src/") and not path.startswith("src/base/")
        if ours and GETENV.search(line):
            findings.append(Finding(path, number, "only src/base reads the environment: use its settings"))
    return findings


def judge(path: str, header: str) -> str | None:
    """What is wrong with this file including this header, or None."""
    if is_core(path) and OUTSIDE_CORE.match(header):
        return f'the core must not include "{header}"'
    for family, pattern in FAMILIES.items():
        if pattern.search(header) and not path.startswith(tuple(ALLOWED[family])):
            who = "the core" if is_core(path) else f"{path.rsplit('/', 1)[0]}/"
            return f'{who} must not include {family}\'s "{header}"'
    return None


def check_tree(root: Path) -> tuple[int, list[Finding]]:
    """How many files were read, and the findings in them."""
    everything = (path for folder in ROOTS for path in (root / folder).rglob("*"))
    files = sorted(p for p in everything if p.suffix in SUFFIXES and p.is_file())
    findings = []
    for file in files:
        findings += check_text(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))
    return len(files), findings


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(__file__).resolve().parents[1]
    parser.add_argument("--root", type=Path, default=default, help="the checkout to check")
    args = parser.parse_args()
    count, findings = check_tree(args.root)
    for finding in findings:
        print(finding)
    if count == 0:
        print(f"check_layers: expected sources in {args.root}, found none", file=sys.stderr)
        return 1
    print(f"check_layers: {count} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

"""The code of the documentation runs: every ```python block of a page, in order, in one process per page."""

import re

import pytest

from helpers import REPOSITORY, run_python

PAGES = sorted([*(REPOSITORY / "docs").glob("**/*.md"), *REPOSITORY.glob("README.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def program_of(text: str) -> str:
    """The page's blocks, each at its own line, so that a traceback names the page's line."""
    lines: list[str] = []
    for block in BLOCK.finditer(text):
        start = text.count("\n", 0, block.start(1))
        lines += [""] * (start - len(lines)) + block.group(1).splitlines()
    return "\n".join(lines) + "\n"


WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_the_code_of_a_page_runs(page, tmp_path):
    source = program_of(page.read_text(encoding="utf-8"))
    script = tmp_path / (page.stem + ".py")
    script.write_text(source, encoding="utf-8")
    done = run_python(str(script), cwd=tmp_path)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"

"""Lets programs that say `import torch_xla` run on Spool, unchanged.

`install()` makes `torch_xla` and its submodules stand for the modules of
`torch_spool` with the same path: one module object under two names, so state
and identity are shared. `python -m torch_spool script.py` calls it for you.
Packages that ask which torch_xla is installed are told the release whose names
Spool follows.
"""

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_OLD = "torch_xla"
_NEW = "torch_spool"
_RELEASE = "2.9.0"  # torch_xla's last; Spool follows its names


class _AliasLoader(Loader):
    """Gives the module of Spool itself in place of a new one."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # It has been run under its own name; the import system has put the
        # alias's spec on it, which would break a later reload.
        module.__spec__ = self._spec


class _AliasFinder(MetaPathFinder):
    """Finds `torch_xla` and what is below it."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if name != _OLD and not name.startswith(f"{_OLD}."):
            return None
        target_name = _NEW + name[len(_OLD) :]
        found = importlib.util.find_spec(target_name)
        if found is None:
            raise ModuleNotFoundError(
                f"[torch_spool.compat] expected a module that Spool has, got {name}; "
                f"there is no {target_name}: take the import out or run the script "
                "with torch_xla",
                name=name,
            )
        is_package = found.submodule_search_locations is not None
        return ModuleSpec(name, _AliasLoader(target_name), is_package=is_package)

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterator[importlib.metadata.Distribution]:
        """`importlib.metadata.version("torch_xla")` and its like come here."""
        asked = getattr(context, "name", None)
        if asked is not None and asked.lower().replace("-", "_") == _OLD:
            yield _OldDistribution()


class _OldDistribution(importlib.metadata.Distribution):
    """What an installed torch_xla would say of itself."""

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            return f"Metadata-Version: 2.1\nName: {_OLD}\nVersion: {_RELEASE}\n"
        return None

    def locate_file(self, path: str) -> str:  # type: ignore[override]
        raise FileNotFoundError(f"[torch_spool.compat] {_OLD} has no files of its own, got {path}")


def install() -> None:
    """Make `import torch_xla` resolve to Spool from now on, in this process.

    A second call does nothing. Raises `RuntimeError` when another `torch_xla`
    has been imported already.
    """
    loaded = sys.modules.get(_OLD)
    if loaded is not None and loaded is not sys.modules.get(_NEW):
        raise RuntimeError(
            "[torch_spool.compat] expected to be installed before torch_xla is "
            f"imported, but {getattr(loaded, '__file__', _OLD)} is loaded; call "
            "install() first"
        )
    if not any(isinstance(one, _AliasFinder) for one in sys.meta_path):
        sys.meta_path.insert(0, _AliasFinder())

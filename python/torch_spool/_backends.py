"""Makes `torch.compile` know the backends, without importing it.

PyTorch looks for the backend "openxla" in a module of its own, which hands over
to torch_xla. Spool's takes that module's place when it is imported, and that is
when `torch.compile` looks for a backend for the first time.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_MODULE = "torch._dynamo.backends.torchxla"


class _Registers(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        from . import dynamo

        dynamo.register_backends()


class _Finder(MetaPathFinder):
    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        return ModuleSpec(name, _Registers()) if name == _MODULE else None


def register() -> None:
    """Register the backends: at once where PyTorch has looked for them already, else when it does."""
    if _MODULE in sys.modules:
        from . import dynamo

        dynamo.register_backends()
    elif not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())

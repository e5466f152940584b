"""What makes a command start quickly: leaving out what no command needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def leave_pandas_out() -> None:
    """Let pyarrow find no pandas: it would load it, for most of a second, at the first array it makes.

    No command hands out frames. Where pyarrow runs already, somebody else's program does, and nothing is changed.
    """
    if "pyarrow" not in sys.modules and "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())


class _NoPandas(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == "pandas" else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        raise ModuleNotFoundError("the command line works without pandas", name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        raise AssertionError("never made")

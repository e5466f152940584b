"""Makes commands start quickly by blocking imports that no command needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def leave_out_what_is_slow() -> None:
    """Hide packages from other libraries that are slow to load and that no command needs.

    pyarrow would load numpy and pandas, which takes a second, at the first array it creates; no command returns data
    frames. (Spark needs numpy and gets it; its own start takes longer.) httpx would load its own command line. If pyarrow
    is already loaded, this runs inside another program, and nothing is hidden. A server gets everything, since it starts
    only once.
    """
    if "pyarrow" not in sys.modules and "pandas" not in sys.modules and "serve" not in sys.argv:
        sys.meta_path.insert(0, _LeftOut())


class _LeftOut(MetaPathFinder, Loader):
    _NAMES = frozenset({"pandas", "numpy", "httpx._main"})

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "numpy" and "pyspark" in sys.modules:
            return None
        return ModuleSpec(name, self) if name in self._NAMES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        raise ModuleNotFoundError(f"the command line works without {spec.name}", name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        raise AssertionError("create_module always raises")

"""What makes a command start quickly: leaving out what no command needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def leave_out_what_is_slow() -> None:
    """Let libraries find no packages that no command needs and that take long to load.

    pyarrow would load numpy and pandas, for a second, at the first array it makes; no command hands out frames. (Spark
    wants numpy and gets it, its own start takes longer.) httpx would load its own command line. Where pyarrow runs already, somebody else's program does, and nothing is changed.
    A server runs for long and starts once: it gets everything.
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
        raise AssertionError("never made")

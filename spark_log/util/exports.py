"""The exports of a folder: the names in its ``__init__.pyi``, imported on first use (PEP 562)."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable

import lazy_loader


def attach_stub(
    package: str,
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package with a stub.

    ``lazy_loader.attach_stub`` does the same for a package in a directory. This one asks the
    package's loader for the stub, so the package may lie in a zip file, as after
    ``spark-submit --py-files``.

    Args:
        package: the package's ``__name__``. Its ``__init__.pyi`` has imports from the package's
            own files.
    """
    module = sys.modules[package]
    assert module.__file__ is not None
    # Not `pkgutil.get_data`, whose import takes longer than reading the stub.
    stub = module.__loader__.get_data(os.path.splitext(module.__file__)[0] + ".pyi")  # type: ignore[union-attr]
    modules: set[str] = set()
    names_of: dict[str, list[str]] = {}
    for node in ast.parse(stub).body:
        if isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            if node.module is None:
                modules.update(names)
            else:
                names_of.setdefault(node.module, []).extend(names)
    getter, lister, exported = lazy_loader.attach(package, modules, names_of)
    return getter, lister, exported

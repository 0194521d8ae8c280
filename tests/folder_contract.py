"""An import contract: a folder's files are its own, other folders import what it exports."""

from __future__ import annotations

from collections.abc import Iterator

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output
from importlinter.domain import fields
from importlinter.domain.imports import ModuleExpression


class FolderContract(Contract):
    """Files import other folders, never files in other folders.

    `spark_log.admin.topics` may import `spark_log.log`, and not `spark_log.log.clean.cleaner`;
    `spark_log.log.partition_log` may import `spark_log.log.clean`, and not the file in it. Files
    of one folder import each other. No module imports a folder that it lies in: the folder's stub
    would hide which file is meant, and so a circle.

    A folder may have public subfolders, for importers with a purpose of their own. What such a
    subfolder exports is imported from it, and the folder does not export it.
    """

    exempt_importers = fields.SetField(subfield=fields.ModuleExpressionField(), required=False)
    exempt_files = fields.SetField(subfield=fields.ModuleExpressionField(), required=False)
    public_subfolders = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        importers = _modules(graph, self.exempt_importers)  # type: ignore[arg-type]
        files = _modules(graph, self.exempt_files)  # type: ignore[arg-type]
        public: frozenset[str] = frozenset(self.public_subfolders or ())  # type: ignore[arg-type]
        broken = [
            (importer, imported, folder)
            for importer in sorted(graph.modules - importers)
            for imported in sorted(graph.find_modules_directly_imported_by(importer) - files)
            if (folder := folder_to_import(graph, importer, imported, public)) is not None
        ]
        own = [
            (importer, imported)
            for importer in sorted(graph.modules - importers)
            for imported in sorted(graph.find_modules_directly_imported_by(importer) - files)
            if imported in _folders_above(importer)
        ]
        return ContractCheck(kept=not (broken or own), metadata={"broken": broken, "own": own})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, imported, folder in check.metadata["broken"]:
            output.print_error(f"{importer} imports {imported}: import it from {folder}")
        for importer, imported in check.metadata["own"]:
            output.print_error(f"{importer} imports its own folder {imported}: import the file")
        output.print_error("Names to export are written into __init__.pyi of the folder.")


def folder_to_import(
    graph: ImportGraph, importer: str, imported: str, public: frozenset[str] = frozenset()
) -> str | None:
    """Return the folder to import from, or None if the module itself may be imported.

    Args:
        graph: the imports of the package.
        importer: the importing module.
        imported: the module that it imports.
        public: subfolders that are imported by their own names.
    """
    above = list(_folders_above(imported))
    for folder in above:
        if folder in graph.modules and not f"{importer}.".startswith(f"{folder}."):
            door = next((each for each in (*above, imported) if each in public), folder)
            return None if door == imported else door
    return None


def _folders_above(module: str) -> Iterator[str]:
    """Yield the folders that a module lies in, the outermost first, without the root package."""
    parts = module.split(".")
    for depth in range(2, len(parts)):
        yield ".".join(parts[:depth])


def _modules(graph: ImportGraph, expressions: set[ModuleExpression] | None) -> set[str]:
    return {
        module
        for expression in expressions or ()
        for module in graph.find_matching_modules(expression.expression)
    }

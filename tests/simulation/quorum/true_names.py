"""A model of the names of a quorum: the bytes of each name, and the puts that were acknowledged."""

from __future__ import annotations

from spark_log.storage import WITNESSES
from spark_log.storage.root_directories import QUORUM_DIRECTORY
from tests.simulation.violation import ViolationError


class TrueNames:
    """Checks that a name has one content for ever, and that acknowledged content is read.

    Attributes:
        contents: by path, the bytes of the first file under this name on any member.
        acknowledged: paths that were put, or shown, so that every later reader has to see them.
    """

    def __init__(self) -> None:
        """Return a model without names."""
        self.contents: dict[str, bytes] = {}
        self.acknowledged: set[str] = set()
        self._numbers: set[int] = set()

    def on_put(self, root: str, path: str, content: bytes) -> None:
        """Check a file that appeared on a member."""
        is_replaced = path.startswith(f"{WITNESSES}/") or path.endswith(".installed")
        if is_replaced or f"/{QUORUM_DIRECTORY}/" in f"/{path}":
            return
        first = self.contents.setdefault(path, content)
        if first != content:
            raise ViolationError(f"{path} is {content[:80]!r} on {root}, and was {first[:80]!r}")

    def on_delete(self, path: str) -> None:
        """Do nothing: the actors delete no files of the quorum."""

    def check_put(self, path: str, content: bytes) -> None:
        """Check an answer to a put: it has taken the name."""
        self._check_content(path, content)
        self.acknowledged.add(path)

    def check_refused(self, path: str, content: bytes) -> None:
        """Check an answer to a put: others have taken the name."""
        found = self.contents.get(path)
        if found is None:
            raise ViolationError(f"{path} is said to exist, and nobody has put it")
        if found == content:
            raise ViolationError(f"{path} has these bytes, and their proposer was told it had lost")
        self.acknowledged.add(path)

    def check_shown(self, path: str, content: bytes) -> None:
        """Check a file that a reader was shown; every later reader has to see it."""
        self._check_content(path, content)
        self.acknowledged.add(path)

    def check_missing(self, path: str, expected: set[str]) -> None:
        """Check an answer to a reader: the name is free."""
        if path in expected:
            raise ViolationError(f"{path} is not found, and was acknowledged")

    def check_listed(self, directory: str, shown: set[str], expected: set[str]) -> None:
        """Check a listing of a directory."""
        missing = {path for path in expected if path.startswith(f"{directory}/")} - shown
        if missing:
            raise ViolationError(f"{sorted(missing)} are not listed, and were acknowledged")

    def check_number(self, number: int) -> None:
        """Check a number that was taken from the metadata log: nobody has it."""
        if number in self._numbers:
            raise ViolationError(f"producer id {number} is given twice")
        self._numbers.add(number)

    def _check_content(self, path: str, content: bytes) -> None:
        found = self.contents.get(path)
        if found != content:
            raise ViolationError(
                f"{path} is said to be {content[:80]!r}, and is {found and found[:80]!r}"
            )

"""The conformance suite finds broken stores: one suite for each broken promise."""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]

BROKEN_STORES = """
import time
import uuid

import pyarrow as pa
import pytest

from spark_log.errors import AlreadyExistsError, NotFoundError, StorageError
from spark_log.storage import FileInfo, StagedFile
from spark_log.storage.memory import MemoryStore
from spark_log.testing.store_suite import StoreSuite


class Overwriting(MemoryStore):
    def put_if_absent(self, path, source, *, sync=True):
        self.put(path, source.read_back() if isinstance(source, StagedFile) else source)


class CheckingBefore(MemoryStore):
    def put_if_absent(self, path, source, *, sync=True):
        if path in self._files.data:
            raise AlreadyExistsError(f"{path} exists", path=path)
        time.sleep(0)  # let other threads in
        self.put(path, source.read_back() if isinstance(source, StagedFile) else source)


class WritingInPieces(MemoryStore):
    def put_if_absent(self, path, source, *, sync=True):
        whole = source.read_back() if isinstance(source, StagedFile) else pa.py_buffer(source)
        super().put_if_absent(path, whole.slice(0, whole.size // 2))
        time.sleep(0)  # let other threads in
        self.put(path, whole)


class SpendingTheStagedFile(MemoryStore):
    def put_if_absent(self, path, source, *, sync=True):
        try:
            super().put_if_absent(path, source, sync=sync)
        finally:
            if isinstance(source, StagedFile):
                source.discard()


class Unsorted(MemoryStore):
    def list(self, directory, start_after=None):
        yield from sorted(super().list(directory, start_after), key=lambda file: file.name.lower())


class StartingAt(MemoryStore):
    def list(self, directory, start_after=None):
        yield from (f for f in super().list(directory) if not start_after or f.name >= start_after)


class ListingAPage(MemoryStore):
    def list(self, directory, start_after=None):
        yield from [*super().list(directory, start_after)][:1000]


class ListingPrefixes(MemoryStore):
    def list(self, directory, start_after=None):
        for path in sorted(self._files.data):
            if path.startswith(directory) and (not start_after or path > start_after):
                yield self.head(path)


class InMilliseconds(MemoryStore):
    def head(self, path):
        file = super().head(path)
        return FileInfo(file.path, file.size_bytes, file.modified_us // 1000)


class ReadingStrictly(MemoryStore):
    def read(self, path, start, length):
        if start + length > self.head(path).size_bytes:
            raise StorageError(f"{path}: range not satisfiable", path=path)
        return super().read(path, start, length)


class ForgettingThePath(MemoryStore):
    def open_buffer(self, path):
        try:
            return super().open_buffer(path)
        except NotFoundError:
            raise NotFoundError("no such file") from None


class DeletingStrictly(MemoryStore):
    def delete(self, path):
        self.head(path)
        super().delete(path)


class DeletingByPrefix(MemoryStore):
    def delete_directory(self, directory):
        for path in [path for path in self._files.data if path.startswith(directory)]:
            self.delete(path)


class Unpicklable(MemoryStore):
    def __reduce__(self):
        return type(self), (uuid.uuid4().hex,)


for kind in MemoryStore.__subclasses__():

    class Suite(StoreSuite):
        works_across_processes = False
        kind = kind

        @pytest.fixture
        def store(self):
            return self.kind(uuid.uuid4().hex)

    # The copy of a pickled store has to be as broken as its original.
    if "__reduce__" not in vars(kind):
        kind.__reduce__ = lambda self: (type(self), (self.name,))
    globals()[f"Test{kind.__name__}"] = Suite
"""

FOUND_BY = {
    "Overwriting": "first_put_wins",
    "CheckingBefore": "racing_threads_exactly_one",
    "WritingInPieces": "seen_whole_or_not_at_all",
    "SpendingTheStagedFile": "goes_under_the_next_name",
    "Unsorted": "in_byte_order",
    "StartingAt": "starts_after_a_name",
    "ListingAPage": "long_directory",
    "ListingPrefixes": "directly_in_a_directory",
    "InMilliseconds": "size_and_time",
    "ReadingStrictly": "what_there_is_of_a_range",
    "ForgettingThePath": "not_found_under_its_path",
    "DeletingStrictly": "harmless_where_nothing_is",
    "DeletingByPrefix": "nothing_beside_it",
    "Unpicklable": "pickled_store_sees",
}


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """Return the names of the failed tests for each store."""
    folder = tmp_path_factory.mktemp("broken")
    (folder / "test_broken.py").write_text(BROKEN_STORES)
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-rf", "-p", "no:cacheprovider"]
    # "importlib": an `__init__.py` that somebody left in a folder above is no part of the test.
    command += ["--import-mode=importlib", f"--rootdir={folder}", "-c", "/dev/null"]
    command += ["-k", " or ".join(FOUND_BY.values()), str(folder / "test_broken.py")]
    done = subprocess.run(
        command, cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False
    )
    found = defaultdict(list)
    for store, test in re.findall(r"^FAILED \S+::Test(\w+)::(\S+)", done.stdout, re.MULTILINE):
        found[store].append(test)
    assert found, done.stdout + done.stderr
    return found


@pytest.mark.parametrize(("store", "test"), FOUND_BY.items())
def test_a_store_that_breaks_a_promise_fails_the_test_of_that_promise(failures, store, test):
    assert any(test in failed for failed in failures[store]), failures[store]


def test_the_store_suite_does_not_need_spark():
    modules = "spark_log.testing.store_suite, spark_log.testing.store_stateful, sys"
    code = f"import {modules}; sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=PROJECT, timeout=60, check=True)


def test_every_broken_store_is_tested():
    defined = set(re.findall(r"^class (\w+)\(MemoryStore\)", BROKEN_STORES, re.MULTILINE))
    assert defined == set(FOUND_BY)

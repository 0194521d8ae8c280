"""Tests a store with random sequences of operations, against a dict as the model.

Subclass `StoreStateMachine` for a backend; pytest collects its ``TestCase``::

    from spark_log.testing.store_stateful import StoreStateMachine


    class MyStoreMachine(StoreStateMachine):
        def make_store(self):
            return MyStore(tempfile.mkdtemp())


    TestMyStoreStateful = MyStoreMachine.TestCase

Hypothesis' settings determine the number and the length of the sequences.
"""

from __future__ import annotations

import pickle
from contextlib import ExitStack

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from spark_log.errors import AlreadyExistsError, NotFoundError
from spark_log.storage import StagedFile, Store

_DIRECTORIES = ("", "topic", "topic/partition", "topics")
_DELETED = "topics"
"""The directory that is deleted as a whole. No file is staged in it, as it could be lost."""

_NAMES = ("0.index", "0.log", "00-01.1.log", "1.log", "Z")

_Staged = tuple[StagedFile, str, bytes]
"""A staged file, the directory for which it was staged, and its bytes."""

directories = st.sampled_from(_DIRECTORIES)
names = st.sampled_from(_NAMES)
paths = st.builds(lambda directory, name: f"{directory}/{name}".lstrip("/"), directories, names)
contents = st.binary(max_size=64) | st.binary(min_size=64, max_size=64).map(lambda b: b * 1_000)


class StoreStateMachine(RuleBasedStateMachine):
    """Checks that a store, used through two handles, behaves like a dict of path to bytes."""

    staged_files: Bundle[_Staged] = Bundle("staged_files")

    def make_store(self) -> Store:
        """Return a store on an empty root; a subclass must implement it."""
        raise NotImplementedError("a store machine needs make_store()")

    def close_store(self) -> None:
        """Clean up after one sequence; does nothing by default."""

    # --- state -----------------------------------------------------------------------------------

    @initialize()
    def open_store(self) -> None:
        """Start with an empty store and an empty dict."""
        store = self.make_store()
        store.create_root()
        self.handles: tuple[Store, Store] = (store, pickle.loads(pickle.dumps(store)))
        self.model: dict[str, bytes] = {}
        self.open_buffers: list[tuple[pa.Buffer, bytes]] = []
        self.staged = ExitStack()

    def teardown(self) -> None:
        """Discard the files that are still staged."""
        if hasattr(self, "staged"):
            self.staged.close()
            self.close_store()

    # --- writing ---------------------------------------------------------------------------------

    @rule(handle=st.integers(0, 1), path=paths, content=contents, as_buffer=st.booleans())
    def put_if_absent(self, handle: int, path: str, content: bytes, as_buffer: bool) -> None:
        """`put_if_absent` creates a name only once."""
        source = pa.py_buffer(content) if as_buffer else content
        if path in self.model:
            with pytest.raises(AlreadyExistsError):
                self.handles[handle].put_if_absent(path, source, sync=False)
        else:
            self.handles[handle].put_if_absent(path, source, sync=False)
            self.model[path] = content

    @rule(
        target=staged_files,
        handle=st.integers(0, 1),
        directory=directories.filter(lambda directory: directory != _DELETED),
        content=contents,
    )
    def stage(self, handle: int, directory: str, content: bytes) -> _Staged:
        """A staged file is not listed."""
        staged = self.staged.enter_context(self.handles[handle].stage(directory))
        staged.sink.write(content)
        return staged, directory, content

    @rule(target=staged_files, staged=consumes(staged_files), handle=st.integers(0, 1), name=names)
    def put_staged(self, staged: _Staged, handle: int, name: str) -> MultipleResults[_Staged]:
        """A staged file takes a free name; if it is taken, it can be put under another."""
        file, directory, content = staged
        path = f"{directory}/{name}".lstrip("/")
        if path in self.model:
            with pytest.raises(AlreadyExistsError):
                self.handles[handle].put_if_absent(path, file, sync=False)
            return multiple(staged)
        self.handles[handle].put_if_absent(path, file, sync=False)
        self.model[path] = content
        return multiple()

    @rule(staged=consumes(staged_files))
    def discard(self, staged: _Staged) -> None:
        """Discarding a staged file changes no listing."""
        staged[0].discard()

    @rule(handle=st.integers(0, 1), path=paths, content=contents)
    def put(self, handle: int, path: str, content: bytes) -> None:
        """`put` creates or replaces a file."""
        self.handles[handle].put(path, content)
        self.model[path] = content

    @rule(handle=st.integers(0, 1), path=paths)
    def delete(self, handle: int, path: str) -> None:
        """A deleted file does not exist, and deleting it again does nothing."""
        self.handles[handle].delete(path)
        self.model.pop(path, None)

    @rule(handle=st.integers(0, 1))
    def delete_directory(self, handle: int) -> None:
        """`delete_directory` deletes all files below a directory."""
        self.handles[handle].delete_directory(_DELETED)
        for path in [path for path in self.model if path.startswith(f"{_DELETED}/")]:
            del self.model[path]

    # --- reading ---------------------------------------------------------------------------------

    @rule(
        handle=st.integers(0, 1),
        path=paths,
        start=st.integers(0, 70_000) | st.integers(0, 70),
        length=st.integers(0, 70_000) | st.integers(0, 70),
    )
    def read(self, handle: int, path: str, start: int, length: int) -> None:
        """`read` and `read_tail` return the same ranges as slices of the bytes."""
        store, content = self.handles[handle], self.model.get(path)
        if content is None:
            with pytest.raises(NotFoundError):
                store.read(path, start, length)
            with pytest.raises(NotFoundError):
                store.read_tail(path, length)
            return
        assert store.read(path, start, length).to_pybytes() == content[start : start + length]
        tail = content[max(0, len(content) - length) :]
        assert store.read_tail(path, length).to_pybytes() == tail

    @rule(handle=st.integers(0, 1), path=paths)
    def open_buffer(self, handle: int, path: str) -> None:
        """`open_buffer` returns all bytes; `buffers_do_not_change` checks them from then on."""
        if path in self.model:
            buffer = self.handles[handle].open_buffer(path)
            self.open_buffers.append((buffer, self.model[path]))
        else:
            with pytest.raises(NotFoundError):
                self.handles[handle].open_buffer(path)

    @rule(handle=st.integers(0, 1), directory=directories, after=st.none() | names)
    def list_directory(self, handle: int, directory: str, after: str | None) -> None:
        """`list` yields the names in order, with their sizes."""
        prefix = f"{directory}/" if directory else ""
        expected = [
            (path, len(content))
            for path, content in sorted(self.model.items())
            if path.rpartition("/")[0] == directory and (not after or path > prefix + after)
        ]
        files = self.handles[handle].list(directory, start_after=after)
        assert [(file.path, file.size_bytes) for file in files] == expected

    @invariant()
    def buffers_do_not_change(self) -> None:
        """An open buffer keeps its bytes after any change of the file."""
        for buffer, content in getattr(self, "open_buffers", []):
            assert buffer.to_pybytes() == content

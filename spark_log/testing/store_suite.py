"""The conformance suite of `spark_log.storage.Store`: a test for each of its guarantees.

A backend conforms if a class like this one passes::

    import pytest
    from spark_log.testing.store_suite import StoreSuite


    class TestMyStore(StoreSuite):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(str(tmp_path))

For readable failures, call ``pytest.register_assert_rewrite("spark_log.testing")`` in a
``conftest.py``. `store_stateful.StoreStateMachine` tests the same port with random sequences.
"""

# ruff: noqa: D102 - the names of tests describe them

from __future__ import annotations

import multiprocessing
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
import pytest

from spark_log.errors import (
    AlreadyExistsError,
    NotFoundError,
    StorageError,
    UnsupportedStoreError,
)
from spark_log.storage import FileInfo, StagedFile, Store

_T = TypeVar("_T")

_DAY_US = 86_400_000_000


class StoreSuite:
    """The tests; subclass it, and define the fixture `store`.

    Every test starts with a new, empty store. The tests assume only the port itself, and that
    `reopen` returns a handle on the same files.

    Attributes:
        works_across_processes: whether a handle that was pickled into another process on this
            machine sees the same files; if so, races are run between processes, too.
        contenders: the number of threads that race for the same names.
        many_files: a number of files that exceeds one page of a listing. For a store without pages
            a small number is enough.
    """

    works_across_processes: ClassVar[bool] = True
    contenders: ClassVar[int] = 8
    many_files: ClassVar[int] = 1_100

    @pytest.fixture
    def store(self) -> Store:
        """Return a store on an empty root; a subclass must define it."""
        raise NotImplementedError("a store suite needs a fixture `store`: a Store, empty")

    def reopen(self, store: Store) -> Store:
        """Return a second handle on the same files, like the handle of another process."""
        other = pickle.loads(pickle.dumps(store))
        assert isinstance(other, Store)
        return other

    # --- the root --------------------------------------------------------------------------------

    def test_creating_a_root_twice_is_harmless_and_leaves_nothing_to_see(
        self, store: Store
    ) -> None:
        store.create_root()
        store.put_if_absent("kept", b"kept")
        store.create_root()
        assert _names(store, "") == ["kept"]
        assert _content(store, "kept") == b"kept"

    def test_a_pickled_store_sees_the_same_files(self, store: Store) -> None:
        store.put_if_absent("topic/0.log", b"from the first")
        other = self.reopen(store)
        assert other.url == store.url
        assert _content(other, "topic/0.log") == b"from the first"
        with pytest.raises(AlreadyExistsError):
            other.put_if_absent("topic/0.log", b"from the second")
        other.put_if_absent("topic/1.log", b"from the second")
        assert _content(store, "topic/1.log") == b"from the second"

    def test_a_directory_has_a_url_for_other_libraries_or_says_why_not(self, store: Store) -> None:
        try:
            urls = [store.directory_url(name) for name in ("offsets", "other")]
        except UnsupportedStoreError as error:
            refusal = error
        else:
            assert [url.rpartition("/")[2] for url in urls] == ["offsets", "other"]
            return
        assert store.url in refusal.message

    # --- put_if_absent ---------------------------------------------------------------------------

    @pytest.mark.parametrize("sync", [True, False])
    @pytest.mark.parametrize("kind", ["bytes", "buffer", "staged"])
    @pytest.mark.parametrize("content", [b"", b"x", b"0123456789" * 100_000])
    def test_what_was_put_is_what_is_read(
        self, store: Store, content: bytes, kind: str, sync: bool
    ) -> None:
        with _source(store, kind, "topic", content) as source:
            store.put_if_absent("topic/0.log", source, sync=sync)
        assert _content(store, "topic/0.log") == content
        assert _names(store, "topic") == ["0.log"]
        assert store.head("topic/0.log").size_bytes == len(content)

    @pytest.mark.parametrize("second", ["bytes", "buffer", "staged"])
    @pytest.mark.parametrize("first", ["bytes", "buffer", "staged"])
    def test_the_first_put_wins_and_its_bytes_are_not_touched(
        self, store: Store, first: str, second: str
    ) -> None:
        with _source(store, first, "topic", b"first") as source:
            store.put_if_absent("topic/0.log", source)
        before = store.head("topic/0.log")
        with (
            _source(store, second, "topic", b"the second, and longer") as source,
            pytest.raises(AlreadyExistsError) as caught,
        ):
            store.put_if_absent("topic/0.log", source)
        assert caught.value.path == "topic/0.log"
        assert _content(store, "topic/0.log") == b"first"
        assert store.head("topic/0.log") == before

    def test_an_empty_file_takes_its_name_too(self, store: Store) -> None:
        store.put_if_absent("empty", b"")
        with pytest.raises(AlreadyExistsError):
            store.put_if_absent("empty", b"late")
        assert _content(store, "empty") == b""

    def test_a_staged_file_that_lost_goes_under_the_next_name_unchanged(self, store: Store) -> None:
        for taken in range(3):
            store.put_if_absent(f"topic/{taken}.log", b"taken")
        with store.stage("topic") as staged:
            staged.sink.write(b"written ")
            staged.sink.write(b"once")
            for name in range(3):
                with pytest.raises(AlreadyExistsError):
                    store.put_if_absent(f"topic/{name}.log", staged)
            store.put_if_absent("topic/3.log", staged)
        assert _content(store, "topic/3.log") == b"written once"
        assert [_content(store, f"topic/{name}.log") for name in range(3)] == [b"taken"] * 3

    def test_missing_directories_are_made(self, store: Store) -> None:
        store.put_if_absent("a/b/c/by-bytes", b"1")
        with store.stage("d/e/f") as staged:
            staged.sink.write(b"2")
            store.put_if_absent("d/e/f/by-stage", staged)
        store.put("g/h/by-put", b"3")
        found = [_content(store, p) for p in ("a/b/c/by-bytes", "d/e/f/by-stage", "g/h/by-put")]
        assert found == [b"1", b"2", b"3"]

    def test_later_changes_to_the_source_do_not_reach_the_file(self, store: Store) -> None:
        mutable = bytearray(b"before")
        store.put_if_absent("absent", pa.py_buffer(mutable))
        store.put("replaced", pa.py_buffer(mutable))
        mutable[:] = b"after!"
        assert _content(store, "absent") == b"before"
        assert _content(store, "replaced") == b"before"

    # --- races -----------------------------------------------------------------------------------

    @pytest.mark.parametrize("kind", ["bytes", "staged"])
    def test_of_racing_threads_exactly_one_gets_each_name(self, store: Store, kind: str) -> None:
        names = [f"topic/{number:03d}.log" for number in range(40)]

        def contend(mark: int) -> list[str]:
            return _take_names(self.reopen(store), names, kind, mark)

        _check_winners(store, names, _race(contend, self.contenders))

    def test_of_racing_processes_exactly_one_gets_each_name(self, store: Store) -> None:
        if not self.works_across_processes:
            pytest.skip("this store lies within one process")
        store.create_root()
        names = [f"topic/{number:03d}.log" for number in range(100)]
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(2)
        with ProcessPoolExecutor(2, context, _meet_at, (barrier,)) as pool:
            futures = [pool.submit(_take_names_of, store, names, mark) for mark in range(2)]
            won = [future.result(timeout=120) for future in futures]
        _check_winners(store, names, won)

    def test_racing_threads_that_move_on_to_the_next_name_leave_none_out(
        self, store: Store
    ) -> None:
        each = 12

        def append(mark: int) -> list[str]:
            handle = self.reopen(store)
            taken: list[str] = []
            for number in range(each):
                with handle.stage("topic") as staged:
                    staged.sink.write(f"{mark}:{number}".encode())
                    for name in count(len(taken)):
                        with suppress(AlreadyExistsError):
                            handle.put_if_absent(f"topic/{name:05d}", staged, sync=False)
                            break
                taken.append(f"{mark}:{number}")
            return taken

        written = _race(append, self.contenders)
        total = each * self.contenders
        assert _names(store, "topic") == [f"{name:05d}" for name in range(total)]
        found = [_content(store, f"topic/{name:05d}").decode() for name in range(total)]
        assert sorted(found) == sorted(mark for marks in written for mark in marks)
        for mark, marks in enumerate(written):
            assert [text for text in found if text.startswith(f"{mark}:")] == marks

    def test_a_file_is_seen_whole_or_not_at_all(self, store: Store) -> None:
        piece, pieces, files = 16_384, 8, 25
        done = threading.Event()

        def write() -> None:
            try:
                for number in range(files):
                    with store.stage("topic") as staged:
                        for _ in range(pieces):
                            staged.sink.write(bytes([number]) * piece)
                        store.put_if_absent(f"topic/{number:03d}", staged, sync=False)
            finally:
                done.set()

        def look() -> int:
            seen = 0
            while True:
                last_look = done.is_set()
                for file in list(store.list("topic"))[seen:]:
                    content = bytes([int(file.name)]) * (piece * pieces)
                    assert file.size_bytes == len(content)
                    assert _content(store, file.path) == content
                    seen += 1
                if last_look:
                    return seen

        with ThreadPoolExecutor(2) as pool:
            writing, looking = pool.submit(write), pool.submit(look)
            writing.result()
            assert looking.result() == files

    # --- put -------------------------------------------------------------------------------------

    @pytest.mark.parametrize("kind", ["bytes", "buffer"])
    def test_put_makes_a_file_and_replaces_it(self, store: Store, kind: str) -> None:
        for content in (b"a first version", b"", b"second"):
            with _source(store, kind, "topic", content) as source:
                assert not isinstance(source, StagedFile)
                store.put("topic/0.index", source)
            assert _content(store, "topic/0.index") == content
            assert store.head("topic/0.index").size_bytes == len(content)
        assert _names(store, "topic") == ["0.index"]

    def test_put_also_replaces_what_put_if_absent_made(self, store: Store) -> None:
        store.put_if_absent("checkpoint", b"old")
        store.put("checkpoint", b"new")
        assert _content(store, "checkpoint") == b"new"

    def test_a_reader_of_a_file_that_is_replaced_sees_one_version(self, store: Store) -> None:
        sizes = {b"a": 70_000, b"b": 30_000}
        store.put("checkpoint", b"a" * sizes[b"a"])
        done = threading.Event()

        def replace() -> None:
            try:
                for _ in range(60):
                    for letter, size in sizes.items():
                        store.put("checkpoint", letter * size)
            finally:
                done.set()

        def look() -> None:
            while not done.is_set():
                for content in (_content(store, "checkpoint"), _read(store, "checkpoint", 0)):
                    assert content == content[:1] * sizes[content[:1]]

        with ThreadPoolExecutor(2) as pool:
            for future in [pool.submit(replace), pool.submit(look)]:
                future.result()

    # --- reading ---------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("start", "length", "expected"),
        [
            (0, 10, b"0123456789"),
            (0, 3, b"012"),
            (3, 4, b"3456"),
            (9, 1, b"9"),
            (8, 100, b"89"),
            (0, 1_000_000, b"0123456789"),
            (10, 5, b""),
            (11, 5, b""),
            (1_000_000, 1, b""),
            (0, 0, b""),
            (5, 0, b""),
            (10, 0, b""),
        ],
    )
    def test_read_gives_what_there_is_of_a_range(
        self, store: Store, start: int, length: int, expected: bytes
    ) -> None:
        store.put_if_absent("digits", b"0123456789")
        assert store.read("digits", start, length).to_pybytes() == expected

    @pytest.mark.parametrize(
        ("length", "expected"),
        [
            (0, b""),
            (1, b"9"),
            (4, b"6789"),
            (10, b"0123456789"),
            (11, b"0123456789"),
            (1_000_000, b"0123456789"),
        ],
    )
    def test_read_tail_gives_the_end_or_the_whole_file(
        self, store: Store, length: int, expected: bytes
    ) -> None:
        store.put_if_absent("digits", b"0123456789")
        assert store.read_tail("digits", length).to_pybytes() == expected
        tail, size_bytes = store.read_tail_and_size("digits", length)
        assert tail.to_pybytes() == expected
        assert size_bytes in (None, 10), "the size of the file, not of the tail"

    def test_an_empty_file_is_read_as_nothing(self, store: Store) -> None:
        store.put_if_absent("empty", b"")
        assert store.read("empty", 0, 10).to_pybytes() == b""
        assert store.read_tail("empty", 10).to_pybytes() == b""
        assert store.open_buffer("empty").size == 0

    def test_every_way_to_read_gives_a_buffer_that_python_can_look_into(self, store: Store) -> None:
        store.put_if_absent("digits", b"0123456789")
        buffers = [
            store.read("digits", 2, 3),
            store.read_tail("digits", 3),
            store.open_buffer("digits"),
        ]
        assert all(isinstance(buffer, pa.Buffer) for buffer in buffers)
        assert [bytes(memoryview(buffer)) for buffer in buffers] == [
            b"234",
            b"789",
            b"0123456789",
        ]

    def test_an_open_buffer_survives_deleting_and_replacing_the_file(self, store: Store) -> None:
        content = bytes(range(256)) * 1_000
        for path in ("deleted", "replaced", "topic/gone"):
            store.put_if_absent(path, content)
        buffers = [store.open_buffer(path) for path in ("deleted", "replaced", "topic/gone")]
        store.delete("deleted")
        store.put("replaced", b"other")
        store.delete_directory("topic")
        assert [buffer.to_pybytes() for buffer in buffers] == [content] * 3

    @pytest.mark.parametrize("times", [0, 1, 100, 1_000])
    def test_what_is_forgotten_is_read_again(self, store: Store, times: int) -> None:
        content = bytes(range(256)) * times
        store.put_if_absent("digits", content)
        buffer = store.open_buffer("digits")
        part = buffer.slice(len(content) // 3)
        assert buffer.to_pybytes() == content
        store.release_memory(buffer)
        assert part.to_pybytes() == content[len(content) // 3 :]
        store.delete("digits")
        store.release_memory(buffer)
        assert buffer.to_pybytes() == content

    @pytest.mark.parametrize("path", ["absent", "topic/absent", "no/such/directory/absent"])
    def test_what_is_not_there_is_not_found_under_its_path(self, store: Store, path: str) -> None:
        store.put_if_absent("topic/0.log", b"another")
        ways: list[Callable[[], object]] = [
            lambda: store.read(path, 0, 1),
            lambda: store.read_tail(path, 1),
            lambda: store.open_buffer(path),
            lambda: store.head(path),
        ]
        for way in ways:
            with pytest.raises(NotFoundError) as caught:
                way()
            assert caught.value.path == path

    # --- list and head ---------------------------------------------------------------------------

    def test_list_is_in_byte_order_of_names(self, store: Store) -> None:
        names = ["a", "B", "_", "0", "00-01.1.log", "00.log", "00.index", "~", "é", "Z", "0+", "aa"]
        for name in names:
            store.put_if_absent(f"topic/{name}", b"")
        assert _names(store, "topic") == sorted(names, key=str.encode)

    @pytest.mark.parametrize("directory", ["", "topic", "topic/partition"])
    def test_list_shows_the_files_directly_in_a_directory(
        self, store: Store, directory: str
    ) -> None:
        for path in ("0", "1", "topic/2", "topic/partition/3", "topic/partition/4/4", "topics/5"):
            store.put_if_absent(path, path.encode())
        expected = {"": ["0", "1"], "topic": ["topic/2"], "topic/partition": ["topic/partition/3"]}
        assert [file.path for file in store.list(directory)] == expected[directory]

    def test_list_starts_after_a_name_whether_there_is_such_a_file_or_not(
        self, store: Store
    ) -> None:
        for directory in ("", "topic/"):
            for name in ("a", "c", "e"):
                store.put_if_absent(f"{directory}{name}", b"")
        for directory in ("", "topic"):
            after = {
                start: [file.name for file in store.list(directory, start_after=start)]
                for start in ("", "A", "a", "b", "c", "d", "e", "f")
            }
            assert after == {
                "": ["a", "c", "e"],
                "A": ["a", "c", "e"],
                "a": ["c", "e"],
                "b": ["c", "e"],
                "c": ["e"],
                "d": ["e"],
                "e": [],
                "f": [],
            }

    def test_a_directory_that_is_missing_is_empty(self, store: Store) -> None:
        assert list(store.list("no/such/directory")) == []
        assert list(store.list("")) == []
        store.put_if_absent("topic/0.log", b"")
        store.delete("topic/0.log")
        assert list(store.list("topic")) == []
        assert list(store.list("top")) == []

    def test_list_and_head_agree_on_size_and_time(self, store: Store) -> None:
        before_us = time.time_ns() // 1_000
        for number in range(3):
            store.put_if_absent(f"topic/{number}", b"x" * number)
        files = list(store.list("topic"))
        assert files == [store.head(file.path) for file in files]
        assert [(file.path, file.name, file.size_bytes) for file in files] == [
            ("topic/0", "0", 0),
            ("topic/1", "1", 1),
            ("topic/2", "2", 2),
        ]
        times_us = [file.modified_us for file in files]
        assert times_us == sorted(times_us)
        # The storage's clock may differ from ours, but not its unit.
        assert all(abs(moment_us - before_us) < _DAY_US for moment_us in times_us)

    def test_a_long_directory_is_listed_whole(self, store: Store) -> None:
        names = [f"{number:05d}" for number in range(self.many_files)]
        with ThreadPoolExecutor(self.contenders) as pool:
            for _ in pool.map(
                lambda name: store.put_if_absent(f"topic/{name}", b"", sync=False), names
            ):
                pass
        assert _names(store, "topic") == names
        half = self.many_files // 2
        rest = [file.name for file in store.list("topic", start_after=names[half])]
        assert rest == names[half + 1 :]

    def test_list_shows_what_stays_while_other_files_come_and_go(self, store: Store) -> None:
        staying = [f"{number:02d}-stays" for number in range(20)]
        for name in staying:
            store.put_if_absent(f"topic/{name}", b"", sync=False)
        done = threading.Event()

        def come_and_go() -> None:
            for number in count():
                if done.is_set():
                    return
                path = f"topic/{number % 20:02d}-goes"
                store.put(path, b"")
                store.delete(path)

        with ThreadPoolExecutor(1) as pool:
            moving = pool.submit(come_and_go)
            try:
                for _ in range(50):
                    listed = _names(store, "topic")
                    assert listed == sorted(listed)
                    assert [name for name in listed if name.endswith("-stays")] == staying
            finally:
                done.set()
            moving.result()

    def test_names_that_begin_with_a_dot_are_never_listed(self, store: Store) -> None:
        store.put_if_absent("topic/.hidden", b"")
        store.put_if_absent("topic/shown", b"")
        assert _names(store, "topic") == ["shown"]

    def test_what_a_listing_leaves_out_is_listed_apart(self, store: Store) -> None:
        for path in (".a", "topic/.b", "topic/.c", "topic/-", "topic/0", "topic/.d/e", "topics/.f"):
            store.put_if_absent(path, b"x")
        assert sorted(file.path for file in store.list_hidden("topic")) == ["topic/.b", "topic/.c"]
        assert [file.path for file in store.list_hidden("")] == [".a"]
        assert list(store.list_hidden("no/such/directory")) == []
        assert next(iter(store.list_hidden("topic"))).size_bytes == 1

    def test_one_call_lists_what_is_shown_and_what_is_hidden(self, store: Store) -> None:
        for path in ("topic/.b", "topic/.c", "topic/-", "topic/0", "topic/.d/e", "topic/d/e"):
            store.put_if_absent(path, b"x")
        shown, hidden = store.list_with_hidden("topic")
        assert list(shown) == list(store.list("topic"))
        assert set(hidden) == set(store.list_hidden("topic"))

    def test_nothing_is_left_that_a_listing_does_not_show(self, store: Store) -> None:
        for number in range(2):
            with store.stage("topic") as staged:
                staged.sink.write(b"x")
                with suppress(AlreadyExistsError):
                    store.put_if_absent("topic/0.log", staged)
            store.put("topic/0.index", bytes([number]))
            with suppress(AlreadyExistsError):
                store.put_if_absent("topic/1.log", b"x")
        with store.stage("topic") as staged:
            staged.sink.write(b"never put")
        assert list(store.list_hidden("topic")) == []

    def test_a_hidden_file_has_the_time_and_size_that_head_gives(self, store: Store) -> None:
        store.put_if_absent("topic/.left", b"x" * 10)
        assert list(store.list_hidden("topic")) == [store.head("topic/.left")]
        store.delete("topic/.left")
        assert list(store.list_hidden("topic")) == []

    def test_directories_are_listed_by_their_names(self, store: Store) -> None:
        for path in ("0", "b/1", "b/c/2", "b/c/3", "b/d/4", "a-b/5", "a/b/6", ".hidden/7"):
            store.put_if_absent(path, b"")
        assert sorted(store.list_directories("")) == ["a", "a-b", "b"]
        assert sorted(store.list_directories("b")) == ["c", "d"]
        assert list(store.list_directories("b/c")) == []
        assert list(store.list_directories("no/such")) == []

    # --- staged files ----------------------------------------------------------------------------

    def test_a_staged_file_is_not_to_be_seen_before_it_is_put(self, store: Store) -> None:
        with store.stage("topic") as staged:
            staged.sink.write(b"x" * 100_000)
            assert list(store.list("topic")) == []
            staged.seal()
            assert list(store.list("topic")) == []
            store.put_if_absent("topic/0.log", staged)
            assert _names(store, "topic") == ["0.log"]
        assert _names(store, "topic") == ["0.log"]

    def test_a_staged_file_knows_its_size_and_its_bytes(self, store: Store) -> None:
        with store.stage("topic") as staged:
            assert staged.size_bytes == 0
            staged.sink.write(b"0123")
            assert staged.size_bytes == 4
            staged.sink.write(b"456789")
            assert staged.size_bytes == 10
            staged.seal()
            staged.seal()
            assert staged.size_bytes == 10
            assert staged.read_back().to_pybytes() == b"0123456789"
            store.put_if_absent("topic/0.log", staged)
        assert _content(store, "topic/0.log") == b"0123456789"

    def test_a_staged_file_can_be_copied_while_it_is_written(self, store: Store) -> None:
        with store.stage("topic") as staged, store.stage("topic") as copy:
            staged.sink.write(b"0123")
            staged.sink.flush()
            written = staged.open_written()
            if written is None:
                pytest.skip("this store cannot do it")
            copy.copy(written, 0, 4)
            staged.sink.write(b"456789")
            staged.seal()
            staged.discard()
            copy.copy(written, 4, 10)
            with pytest.raises(StorageError):
                copy.copy(written, 10, 11)
            store.put_if_absent("topic/0.log", copy)
        assert _content(store, "topic/0.log") == b"0123456789"

    def test_a_staged_file_that_was_put_can_be_put_again_under_another_name(
        self, store: Store
    ) -> None:
        with store.stage("topic") as staged:
            staged.sink.write(b"written once")
            store.put_if_absent("topic/0.log", staged)
            store.delete("topic/0.log")
            store.put_if_absent("topic/1.log", staged)
        assert _names(store, "topic") == ["1.log"]
        assert _content(store, "topic/1.log") == b"written once"

    def test_what_was_read_back_stays_valid_when_the_staged_file_is_gone(
        self, store: Store
    ) -> None:
        with store.stage("topic") as staged:
            staged.sink.write(b"0123456789" * 1_000)
            buffer = staged.read_back()
        assert buffer.to_pybytes() == b"0123456789" * 1_000

    def test_discarding_is_harmless_before_during_and_after_a_put(self, store: Store) -> None:
        never_written, half_written, put = (store.stage("topic") for _ in range(3))
        half_written.sink.write(b"half")
        put.sink.write(b"whole")
        store.put_if_absent("topic/0.log", put)
        for staged in (never_written, half_written, put):
            staged.discard()
            staged.discard()
        assert _names(store, "topic") == ["0.log"]
        assert _content(store, "topic/0.log") == b"whole"

    def test_leaving_a_staged_file_by_an_error_leaves_nothing(self, store: Store) -> None:
        def fail_half_way() -> None:
            with store.stage("topic") as staged:
                staged.sink.write(b"half")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_half_way()
        assert list(store.list("topic")) == []

    def test_a_discarded_file_cannot_be_put_any_more(self, store: Store) -> None:
        staged = store.stage("topic")
        staged.sink.write(b"given up")
        staged.discard()
        with pytest.raises(StorageError):
            store.put_if_absent("topic/0.log", staged)
        assert list(store.list("topic")) == []

    # --- deleting --------------------------------------------------------------------------------

    def test_delete_frees_the_name_and_is_harmless_where_nothing_is(self, store: Store) -> None:
        store.put_if_absent("topic/0.log", b"first")
        store.put_if_absent("topic/1.log", b"other")
        for _ in range(2):
            store.delete("topic/0.log")
        store.delete("no/such/directory/0.log")
        assert _names(store, "topic") == ["1.log"]
        store.put_if_absent("topic/0.log", b"second")
        assert _content(store, "topic/0.log") == b"second"

    def test_delete_directory_takes_all_below_it_and_nothing_beside_it(self, store: Store) -> None:
        inside = ["topic/0", "topic/partition/1", "topic/partition/deep/2"]
        beside = ["topic.log", "topic2/3", "top/4", "other/topic/5"]
        for path in inside + beside:
            store.put_if_absent(path, b"")
        for _ in range(2):
            store.delete_directory("topic")
        store.delete_directory("no/such/directory")
        for path in inside:
            with pytest.raises(NotFoundError):
                store.head(path)
        for directory in ("topic", "topic/partition", "topic/partition/deep"):
            assert list(store.list(directory)) == []
        assert [store.head(path).path for path in beside] == beside
        store.put_if_absent("topic/0", b"anew")
        assert _content(store, "topic/0") == b"anew"


# --- helpers -------------------------------------------------------------------------------------


def _content(store: Store, path: str) -> bytes:
    content: bytes = store.open_buffer(path).to_pybytes()
    return content


def _read(store: Store, path: str, start: int) -> bytes:
    content: bytes = store.read(path, start, 1 << 20).to_pybytes()
    return content


def _names(store: Store, directory: str) -> list[str]:
    return [file.name for file in _listed(store, directory)]


def _listed(store: Store, directory: str) -> list[FileInfo]:
    files = list(store.list(directory))
    prefix = f"{directory}/" if directory else ""
    assert [file.path for file in files] == [f"{prefix}{file.name}" for file in files]
    return files


@contextmanager
def _source(
    store: Store, kind: str, directory: str, content: bytes
) -> Iterator[bytes | pa.Buffer | StagedFile]:
    """Yield ``content`` in one of the three forms that `put` and `put_if_absent` accept."""
    if kind == "bytes":
        yield content
    elif kind == "buffer":
        yield pa.py_buffer(content)
    else:
        with store.stage(directory) as staged:
            staged.sink.write(content)
            yield staged


def _race(contend: Callable[[int], _T], contenders: int) -> list[_T]:
    """Run ``contend(0)``, ``contend(1)``, … in threads at once, and return their results."""
    barrier = threading.Barrier(contenders)

    def start(mark: int) -> _T:
        barrier.wait(timeout=60)
        return contend(mark)

    with ThreadPoolExecutor(contenders) as pool:
        return list(pool.map(start, range(contenders)))


def _take_names(store: Store, names: Sequence[str], kind: str, mark: int) -> list[str]:
    """Try to create each name, and return the names that were won."""
    won = []
    for name in names:
        # The lengths differ, so that a mixture of two contents is detected.
        with (
            _source(store, kind, "topic", _mark(mark)) as source,
            suppress(AlreadyExistsError),
        ):
            store.put_if_absent(name, source, sync=False)
            won.append(name)
    return won


def _mark(mark: int) -> bytes:
    return f"contender {mark} ".encode() * (100 + mark)


def _check_winners(store: Store, names: Sequence[str], won: Sequence[Sequence[str]]) -> None:
    assert sorted(name for winner in won for name in winner) == sorted(names)
    for mark, winner in enumerate(won):
        for name in winner:
            assert _content(store, name) == _mark(mark)


_process_barrier: Any = None


def _meet_at(barrier: Any) -> None:
    """Set the barrier at which a worker process's tasks wait."""
    global _process_barrier  # noqa: PLW0603 - the only way to hand a barrier to a pool's process
    _process_barrier = barrier


def _take_names_of(store: Store, names: Sequence[str], mark: int) -> list[str]:
    _process_barrier.wait(timeout=60)
    return _take_names(store, names, "bytes", mark)

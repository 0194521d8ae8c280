"""The log of a Delta table: conditional appends, and opening without reading all of it."""

import json
from pathlib import Path
from unittest.mock import Mock, call

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_log import OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.delta.delta_log import DeltaLog
from spark_log.delta.state import SetTransaction
from spark_log.errors import (
    AlreadyExistsError,
    LogEndOffsetMismatchError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.storage import OFFSETS_TABLE
from spark_log.storage.local import LocalStore
from spark_log.util.clock import ManualClock
from tests.waiting import wait_until

P0 = TopicPartition("t", 0)


def opened(cluster):
    log = DeltaLog(cluster.store, OFFSETS_TABLE, cluster.clock)
    log.refresh()
    return log


def moved(name, version):
    return [SetTransaction(name, version).to_action()]


@pytest.fixture
def log(cluster):
    OffsetsTable(cluster).fence("g", 1)  # version 0, which defines the table, and 1
    return opened(cluster)


def test_a_version_is_made_on_the_newest_state_alone(cluster, log, caplog):
    caplog.set_level("DEBUG", "spark_log.delta")
    other = opened(cluster)
    log.append(moved("a", 1), "TEST")

    with pytest.raises(LogEndOffsetMismatchError):
        other.append(moved("b", 1), "TEST")

    (version,) = other.refresh()
    assert (version.number, version.transactions) == (2, (SetTransaction("a", 1),))
    assert other.state.transaction("b") is None
    assert other.append(moved("b", 1), "TEST").number == 3
    told = [each.removeprefix(f"{OFFSETS_TABLE}: ").partition(",")[0] for each in caplog.messages]
    assert told == [
        "read the whole state of version 1",
        "committed version 2",
        "another process was first with version 2",
        "committed version 3",
    ]


def test_nothing_new_costs_one_look(cluster, log, monkeypatch):
    look = Mock(side_effect=cluster.store.open_buffer)
    monkeypatch.setattr(cluster.store, "open_buffer", look)
    monkeypatch.setattr(cluster.store, "list", None)
    assert log.refresh() == []
    folder = f"{OFFSETS_TABLE}/_delta_log"
    assert look.mock_calls == [call(f"{folder}/{2:020}.json"), call(f"{folder}/_last_checkpoint")]


def test_a_lost_answer_is_looked_up(cluster, log, monkeypatch):
    put = cluster.store.put_if_absent

    def lose_answer(path, source, **options):
        put(path, source, **options)
        raise UnknownOutcomeError("lost", path=path)

    monkeypatch.setattr(cluster.store, "put_if_absent", lose_answer)
    with pytest.raises(AlreadyExistsError):
        put(f"{OFFSETS_TABLE}/_delta_log/{1:020}.json", b"")
    attempts = []

    def lose_first(path, source, **options):
        attempts.append(path)
        if len(attempts) == 1:
            lose_answer(path, source, **options)
        put(path, source, **options)

    monkeypatch.setattr(cluster.store, "put_if_absent", lose_first)
    assert log.append(moved("a", 1), "TEST").number == 2
    assert len(attempts) == 2


def test_a_lost_answer_to_anothers_version_is_no_success(cluster, log, monkeypatch):
    put, other = cluster.store.put_if_absent, opened(cluster)
    attempts = []

    def lose_request(path, source, **options):
        attempts.append(path)
        if len(attempts) == 1:
            with monkeypatch.context() as patch:
                patch.setattr(cluster.store, "put_if_absent", put)
                other.append(moved("b", 1), "TEST")
            raise UnknownOutcomeError("lost", path=path)
        put(path, source, **options)

    monkeypatch.setattr(cluster.store, "put_if_absent", lose_request)
    with pytest.raises(LogEndOffsetMismatchError):
        log.append(moved("a", 1), "TEST")


class TestNamesThatWereFreed:
    """Deleted by a program whose clock is days ahead, seconds after they were used."""

    @staticmethod
    def use_and_free(cluster, versions, first_freed=0):
        other = opened(cluster)
        for number in range(versions):
            other.append(moved("other", number), "TEST")
        DeltaTable(cluster.store.directory_url(OFFSETS_TABLE)).create_checkpoint()
        folder = Path(cluster.store.directory_url(OFFSETS_TABLE), "_delta_log")
        other.list_log()  # which sets the time of the checkpoint
        for number in range(first_freed, other.state.version):
            (folder / f"{number:020}.json").unlink(missing_ok=True)
        return other

    @pytest.fixture(params=["local", "listed"])
    def log(self, cluster, log, request, monkeypatch):
        """On a local disk, and as on an object store, which is listed instead."""
        if request.param == "listed":
            monkeypatch.setattr(type(cluster.store), "is_mapped", False)
        return log

    def test_are_not_taken_for_the_end_of_the_log(self, cluster, log):
        assert log.refresh() == []
        other = self.use_and_free(cluster, 4)
        assert log.refresh() is None  # read again, from the checkpoint
        assert log.state.version == other.state.version
        assert log.state.transaction("other").version == 3

    def test_are_not_taken_by_an_append(self, cluster, log, clock):
        log.refresh()
        other = self.use_and_free(cluster, 4)
        clock.advance_ms(log.listing_valid_ms)
        with pytest.raises(LogEndOffsetMismatchError, match="made and deleted"):
            log.append(moved("a", 1), "TEST")
        log.refresh()
        assert log.append(moved("a", 1), "TEST").number == other.state.version + 1
        other.refresh()
        assert other.state.transaction("a").version == 1
        assert opened(cluster).state.transaction("a").version == 1

    def test_are_not_taken_by_who_makes_the_table(self, cluster, log, clock, monkeypatch):
        new = DeltaLog(cluster.store, f"{OFFSETS_TABLE}2", clock)
        new.refresh()
        new.directory, new.log_directory = log.directory, log.log_directory
        self.use_and_free(cluster, 4)
        clock.advance_ms(log.listing_valid_ms)
        with pytest.raises(LogEndOffsetMismatchError, match="made and deleted"):
            new.append(moved("a", 1), "TEST")

    def test_and_taken_by_a_late_put_mislead_nobody(self, cluster, log):
        """The version after the known one is void; later ones are deleted, or are not."""
        for versions in (2, 4):
            log.refresh()
            number = log.state.version + 1
            other = self.use_and_free(cluster, versions)
            void = Path(
                cluster.store.directory_url(OFFSETS_TABLE), "_delta_log", f"{number:020}.json"
            )
            void.write_text(json.dumps(moved("void", 1)[0]))
            assert log.refresh() is None
            assert log.state.version == other.state.version
            assert log.state.transaction("void") is None
            assert opened(cluster).state.transaction("void") is None

    def test_from_the_middle_on_are_not_taken_for_the_end(self, cluster, log, clock):
        """Another program deletes them in another order: the checkpoint shows it."""
        log.refresh()
        known = log.state.version
        self.use_and_free(cluster, 4, first_freed=known + 1)
        assert log.refresh() is None
        assert log.state.transaction("other").version == 3

    def test_are_missed_by_who_cannot_list_only_as_an_unknown_outcome(
        self, cluster, log, clock, monkeypatch
    ):
        log.refresh()
        self.use_and_free(cluster, 4)
        clock.advance_ms(log.listing_valid_ms)

        def fail(*_):
            raise StorageError("down")

        monkeypatch.setattr(cluster.store, "list", fail)
        monkeypatch.setattr(cluster.store, "head", fail)
        with pytest.raises(UnknownOutcomeError, match=r"cannot be listed: down"):
            log.append(moved("a", 1), "TEST")

    def test_look_like_an_unknown_outcome_where_the_checkpoint_is_newer(
        self, cluster, log, clock, monkeypatch
    ):
        """The checkpoint may hold our version or another one; here it holds ours."""
        put = cluster.store.put_if_absent

        def then_checkpoint(path, source, **options):
            put(path, source, **options)
            monkeypatch.undo()
            DeltaTable(cluster.store.directory_url(OFFSETS_TABLE)).create_checkpoint()
            clock.advance_ms(31 * 60_000)

        monkeypatch.setattr(cluster.store, "put_if_absent", then_checkpoint)
        with pytest.raises(UnknownOutcomeError, match="so long after the log was read"):
            log.append(moved("a", 1), "TEST")
        assert log.refresh() is None
        assert log.state.transaction("a").version == 1

    def test_may_be_all_that_a_checkpoint_tells(self, cluster, log):
        """Later versions are then appended to the checkpoint."""
        other = self.use_and_free(cluster, 3)
        newest = other.state.version
        folder = Path(cluster.store.directory_url(OFFSETS_TABLE), "_delta_log")
        (folder / f"{newest:020}.json").unlink()
        assert log.refresh() is None
        assert log.append(moved("a", 1), "TEST").number == newest + 1
        log.refresh()
        assert log.append(moved("a", 2), "TEST").number == newest + 2
        assert opened(cluster).state.transaction("a").version == 2

    def test_are_looked_for_by_a_process_that_stood_still(self, cluster, log, clock, monkeypatch):
        put = cluster.store.put_if_absent

        def stand_still(path, source, **options):
            clock.advance_ms(31 * 60_000)
            put(path, source, **options)

        monkeypatch.setattr(cluster.store, "put_if_absent", stand_still)
        listing = Mock(side_effect=cluster.store.list)
        monkeypatch.setattr(cluster.store, "list", listing)
        assert log.append(moved("a", 1), "TEST").number == 2
        assert listing.call_count == 1
        assert log.refresh() is None  # read again, from the listing
        assert log.state.version == 2

    def test_are_listed_for_by_a_process_that_was_idle(self, cluster, log, clock, monkeypatch):
        """After half of the delay, looking up a single name is not enough."""
        log.refresh()
        monkeypatch.setattr(DeltaLog, "_nothing_deleted_since", lambda *_: True)
        self.use_and_free(cluster, 4)
        clock.advance_ms(29 * 60_000)
        if cluster.store.is_mapped:
            assert log.refresh() == []  # names deleted that early are found in other ways
            clock.advance_ms(30 * 60_000)
        clock.advance_ms(60_000)
        assert log.refresh() is None
        assert log.state.transaction("other").version == 3


def test_an_object_store_is_asked_once_for_what_is_new(cluster, log, clock, monkeypatch):
    monkeypatch.setattr(type(cluster.store), "is_mapped", False)
    calls = []
    for what in ("list", "open_buffer", "head", "put_if_absent"):
        call = getattr(cluster.store, what)

        def counted(*given, what=what, call=call, **options):
            calls.append(what)
            return call(*given, **options)

        monkeypatch.setattr(cluster.store, what, counted)
    assert log.refresh() == []
    assert calls == ["list"]
    log.append(moved("a", 1), "TEST")
    assert calls == ["list", "put_if_absent"]
    clock.advance_ms(log.listing_valid_ms)
    log.append(moved("a", 2), "TEST")
    assert calls[2:] == ["put_if_absent", "list"]


def test_opening_begins_with_the_checkpoint(cluster, log, monkeypatch):
    for version in range(30):
        log.append(moved("a", version), "TEST")
    table = DeltaTable(cluster.store.directory_url(OFFSETS_TABLE))
    table.create_checkpoint()
    log.append(moved("b", 7), "TEST")
    read = Mock(side_effect=cluster.store.open_buffer)
    monkeypatch.setattr(type(cluster.store), "open_buffer", read)

    again = opened(cluster)

    assert read.call_count == 4  # the pointer, the checkpoint, one version after it, and the end
    assert again.state.version == 32
    assert again.state.transaction("a") == SetTransaction("a", 29)
    assert again.state.transaction("b") == SetTransaction("b", 7)
    assert again.state.transaction("group:g").version == 1
    assert again.state.transactions().keys() == {"a", "b", "group:g"}
    assert again.state.configuration["offsets.retention.minutes"] == "10080"


@pytest.mark.parametrize("pointer", [None, b"{", b'{"version": 1, "size": 1}'])
def test_a_pointer_that_is_missing_damaged_or_old_harms_nothing(cluster, log, pointer):
    for version in range(5):
        log.append(moved("a", version), "TEST")
        if version in (0, 3):
            DeltaTable(cluster.store.directory_url(OFFSETS_TABLE)).create_checkpoint()
    folder = Path(cluster.store.directory_url(OFFSETS_TABLE), "_delta_log")
    for version in range(4):  # cleaned up
        (folder / f"{version:020}.json").unlink()
    (folder / "_last_checkpoint").unlink()
    if pointer is not None:
        (folder / "_last_checkpoint").write_bytes(pointer)

    assert opened(cluster).state.transaction("a") == SetTransaction("a", 4)


def test_a_missing_version_is_damage_and_not_the_end(cluster, log):
    for version in range(3):
        log.append(moved("a", version), "TEST")
    Path(cluster.store.directory_url(OFFSETS_TABLE), "_delta_log", f"{3:020}.json").unlink()

    with pytest.raises(StorageError, match=r"version 3 is missing, but version 4.*groups repair"):
        opened(cluster)


@pytest.mark.parametrize("body", [b"{", b'{"add": {}}\n', b"[]\n"])
def test_a_version_that_cannot_be_understood_is_damage(cluster, log, body):
    Path(cluster.store.directory_url(OFFSETS_TABLE), "_delta_log", f"{2:020}.json").write_bytes(
        body
    )
    with pytest.raises(StorageError, match="version 2 cannot be parsed"):
        log.refresh()


def test_a_table_that_others_made_newer_is_left_alone(cluster, log):
    action = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}}
    path = Path(cluster.store.directory_url(OFFSETS_TABLE), "_delta_log", f"{2:020}.json")
    path.write_text(json.dumps(action))
    with pytest.raises(StorageError, match="Delta protocol 3, 7"):
        OffsetsTable(Cluster(cluster.root)).commit("g", {P0: OffsetAndMetadata(1)}, generation=1)


def test_delta_rs_reads_what_was_appended(cluster, log, clock: ManualClock):
    table = OffsetsTable(cluster)
    table.commit("g", {P0: OffsetAndMetadata(5, "ä")}, generation=1, member_id="m")
    delta = DeltaTable(table.url)
    (row,) = delta.to_pyarrow_dataset().to_table().to_pylist()
    assert (row["group"], row["offset"], row["metadata"]) == ("g", 5, "ä")
    assert [each["operation"] for each in delta.history()] == ["WRITE", "WRITE", "CREATE TABLE"]
    assert delta.transaction_version("group:g") == 1


def test_a_checkpoint_whose_text_is_damaged_is_left_out(cluster, log):
    for version in range(3):
        log.append(moved("a", version), "TEST")
    DeltaTable(cluster.store.directory_url(OFFSETS_TABLE)).create_checkpoint()
    (path,) = Path(cluster.store.directory_url(OFFSETS_TABLE), "_delta_log").glob("*.parquet")
    table = pq.read_table(path)
    kept = [name for name in table.column_names if name != "txn"]
    ids = pa.StringArray.from_buffers(
        1, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")
    )
    damaged = pa.StructArray.from_arrays(
        [ids, pa.array([1]), pa.array([0])], ["appId", "version", "lastUpdated"]
    )
    pq.write_table(table.slice(0, 1).select(kept).append_column("txn", [damaged]), path)

    assert opened(cluster).state.transaction("a") == SetTransaction("a", 2)


def test_a_writer_that_paused_in_its_put_does_not_call_its_version_void(tmp_path, monkeypatch):
    """Others go on from its version and write a checkpoint before it deletes its staged file.

    The deletion changes the time of the version's file (its number of links), so the file then
    looks newer than the checkpoint. Here the file system itself sets the times.
    """
    clock = ManualClock()
    cluster = Cluster(str(tmp_path / "root"), create=True, clock=clock)
    OffsetsTable(cluster).fence("g", 1)
    log, store = opened(cluster), cluster.store
    link = LocalStore._link  # noqa: SLF001 - between the link and what follows it
    pauses = []

    def pause(linking, path, *args):
        link(linking, path, *args)
        if path.endswith("2.json"):
            pauses.append(path)
            opened(cluster).append(moved("b", 1), "TEST")
            DeltaTable(store.directory_url(OFFSETS_TABLE)).create_checkpoint()
            clock.advance_ms(31 * 60_000)
            wait_until(file_system_time_has_passed)

    def file_system_time_has_passed():
        store.put("tick", b"")
        checkpoint = store.head(f"{OFFSETS_TABLE}/_delta_log/_last_checkpoint")
        return store.head("tick").modified_us > checkpoint.modified_us

    monkeypatch.setattr(LocalStore, "_link", pause)
    with pytest.raises(UnknownOutcomeError, match="so long after the log was read"):
        log.append(moved("a", 1), "TEST")

    assert len(pauses) == 1
    log.refresh()
    assert log.state.transaction("a").version == 1

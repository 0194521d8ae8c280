"""The log of a Delta table: conditional appends, and opening without reading all of it."""

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_log import OffsetAndMetadata, TopicPartition
from spark_log.clock import ManualClock
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.delta_log import DeltaLog, Transaction
from spark_log.coordinator.offsets_store import DIRECTORY
from spark_log.errors import (
    AlreadyExistsError,
    LogEndOffsetMismatchError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.metadata import Cluster

P0 = TopicPartition("t", 0)


def opened(cluster):
    log = DeltaLog(cluster.store, DIRECTORY, cluster.clock)
    log.refresh()
    return log


def moved(name, version):
    return [Transaction(name, version).to_action()]


@pytest.fixture
def log(cluster):
    OffsetsTable(cluster).fence("g", 1)  # versions 0, which defines the table, and 1
    return opened(cluster)


def test_a_version_is_made_on_the_newest_state_alone(cluster, log):
    other = opened(cluster)
    log.append(moved("a", 1), "TEST")

    with pytest.raises(LogEndOffsetMismatchError):
        other.append(moved("b", 1), "TEST")

    (version,) = other.refresh()
    assert (version.number, version.transactions) == (2, (Transaction("a", 1),))
    assert other.state.transaction("b") is None
    assert other.append(moved("b", 1), "TEST").number == 3


def test_nothing_new_costs_one_look(log, monkeypatch):
    looks = []
    look = log._store.open_buffer
    monkeypatch.setattr(log._store, "open_buffer", lambda path: looks.append(path) or look(path))
    monkeypatch.setattr(log._store, "list", None)
    assert log.refresh() == []
    assert looks == [f"{DIRECTORY}/_delta_log/{2:020}.json"]


def test_a_lost_answer_is_looked_up(log, monkeypatch):
    put = log._store.put_if_absent

    def lose_answer(path, source, **options):
        put(path, source, **options)
        raise UnknownOutcomeError("lost", path=path)

    monkeypatch.setattr(log._store, "put_if_absent", lose_answer)
    with pytest.raises(AlreadyExistsError):
        put(f"{DIRECTORY}/_delta_log/{1:020}.json", b"")
    attempts = []

    def lose_first(path, source, **options):
        attempts.append(path)
        if len(attempts) == 1:
            lose_answer(path, source, **options)
        put(path, source, **options)

    monkeypatch.setattr(log._store, "put_if_absent", lose_first)
    assert log.append(moved("a", 1), "TEST").number == 2
    assert len(attempts) == 2


def test_a_lost_answer_to_anothers_version_is_no_success(cluster, log, monkeypatch):
    put, other = log._store.put_if_absent, opened(cluster)
    attempts = []

    def lose_request(path, source, **options):
        attempts.append(path)
        if len(attempts) == 1:
            with monkeypatch.context() as patch:
                patch.setattr(log._store, "put_if_absent", put)
                other.append(moved("b", 1), "TEST")
            raise UnknownOutcomeError("lost", path=path)
        put(path, source, **options)

    monkeypatch.setattr(log._store, "put_if_absent", lose_request)
    with pytest.raises(LogEndOffsetMismatchError):
        log.append(moved("a", 1), "TEST")


def test_a_process_that_stood_still_knows_no_success(log, clock, monkeypatch):
    put = log._store.put_if_absent

    def stand_still(path, source, **options):
        clock.advance_ms(31 * 60_000)
        put(path, source, **options)

    monkeypatch.setattr(log._store, "put_if_absent", stand_still)
    with pytest.raises(UnknownOutcomeError, match="so long after the log was read"):
        log.append(moved("a", 1), "TEST")
    assert log.refresh() is None  # read anew, from the listing
    assert log.state.version == 2


def test_opening_begins_with_the_checkpoint(cluster, log, monkeypatch):
    for version in range(30):
        log.append(moved("a", version), "TEST")
    table = DeltaTable(cluster.store.directory_url(DIRECTORY))
    table.create_checkpoint()
    log.append(moved("b", 7), "TEST")
    read = []
    look = cluster.store.open_buffer
    monkeypatch.setattr(
        type(cluster.store), "open_buffer", lambda self, path: read.append(path) or look(path)
    )

    again = opened(cluster)

    assert len(read) == 4  # the pointer, the checkpoint, one version behind it, and the end
    assert again.state.version == 32
    assert again.state.transaction("a") == Transaction("a", 29)
    assert again.state.transaction("b") == Transaction("b", 7)
    assert again.state.transaction("group:g").version == 1
    assert again.state.transactions().keys() == {"a", "b", "group:g"}
    assert again.state.configuration["offsets.retention.minutes"] == "10080"


@pytest.mark.parametrize("pointer", [None, b"{", b'{"version": 1, "size": 1}'])
def test_a_pointer_that_is_missing_damaged_or_old_harms_nothing(cluster, log, pointer):
    for version in range(5):
        log.append(moved("a", version), "TEST")
        if version in (0, 3):
            DeltaTable(cluster.store.directory_url(DIRECTORY)).create_checkpoint()
    folder = Path(cluster.store.directory_url(DIRECTORY), "_delta_log")
    for version in range(4):  # cleaned up
        (folder / f"{version:020}.json").unlink()
    (folder / "_last_checkpoint").unlink()
    if pointer is not None:
        (folder / "_last_checkpoint").write_bytes(pointer)

    assert opened(cluster).state.transaction("a") == Transaction("a", 4)


def test_a_missing_version_is_damage_and_not_the_end(cluster, log):
    for version in range(3):
        log.append(moved("a", version), "TEST")
    Path(cluster.store.directory_url(DIRECTORY), "_delta_log", f"{3:020}.json").unlink()

    with pytest.raises(StorageError, match=r"version 3 is missing, and there is 4.*groups repair"):
        opened(cluster)


@pytest.mark.parametrize("body", [b"{", b'{"add": {}}\n', b"[]\n"])
def test_a_version_that_cannot_be_understood_is_damage(cluster, log, body):
    Path(cluster.store.directory_url(DIRECTORY), "_delta_log", f"{2:020}.json").write_bytes(body)
    with pytest.raises(StorageError, match="version 2 cannot be understood"):
        log.refresh()


def test_a_table_that_others_made_newer_is_left_alone(cluster, log):
    action = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}}
    path = Path(cluster.store.directory_url(DIRECTORY), "_delta_log", f"{2:020}.json")
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

"""Storages that do not hold their promise, and clocks that are apart."""

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.doctor import CheckStatus, Doctor, Severity
from spark_log.storage.local import LocalStore
from spark_log.testing.servers.faulty_proxy import FaultyProxy
from spark_log.testing.servers.s3_server import run_s3_server
from spark_log.util.clock import ManualClock
from tests.doctor.support import codes


@pytest.fixture(scope="module")
def unsigned_server():
    """A server that does not check signatures, so that a proxy may change requests."""
    with run_s3_server(moto=True) as server:
        yield server


class TestObjectStore:
    @pytest.fixture
    def proxy(self, unsigned_server):
        with FaultyProxy(unsigned_server.endpoint_url) as proxy:
            yield proxy

    @pytest.fixture
    def open_cluster(self, unsigned_server, proxy):
        """Opens a root through the proxy."""
        root = unsigned_server.new_bucket()
        options = {**unsigned_server.storage_options, "endpoint_url": proxy.url}
        Admin(root, storage_options=options).create_topics([NewTopic("t")])
        return lambda: Cluster(root, options)

    def test_a_server_that_ignores_the_condition(self, open_cluster, proxy):
        proxy.rule = lambda request: "ignore condition" if request.is_conditional else "pass"
        doctor = Doctor(open_cluster, checks=["storage"], probe_storage=True)
        found = list(doctor.findings())
        assert codes(found) == ["put-if-absent-ignored", "put-if-absent-races"]
        assert {each.severity for each in found} == {Severity.ERROR}
        assert "put-if-absent replaced a file" in found[0].message
        assert list(open_cluster().store.list_directories("")) == [
            *sorted(["__cluster_metadata-0", "__witnesses"])
        ]

    def test_a_reader_without_the_right_to_write_is_no_fault(self, open_cluster, proxy):
        proxy.rule = lambda request: 403 if request.method in ("PUT", "POST", "DELETE") else "pass"
        doctor = Doctor(open_cluster, checks=["storage", "clocks"], probe_storage=True)
        assert list(doctor.findings()) == []
        result = doctor.results["storage"]
        assert result.status is CheckStatus.SKIPPED
        assert str(result.reason).startswith("this client has no right to write: __doctor.")
        assert "403" in str(result.reason)

    def test_a_server_that_does_not_answer_is_a_finding(self, open_cluster, proxy):
        proxy.rule = lambda request: 503 if request.method == "PUT" else "pass"
        (found,) = Doctor(open_cluster, checks=["storage"], probe_storage=True).findings()
        assert (found.problem.code, found.severity) == ("not-checked", Severity.WARNING)


class TestLocalStore:
    """Stores with a fault of their own: a file system that lies cannot be mounted here."""

    def test_a_listing_that_lacks_a_new_file(self, patient, monkeypatch):
        listed = LocalStore.list

        def late(store, directory, start_after=None):
            found = list(listed(store, directory, start_after))
            return iter([each for each in found if each.name != "c-10"])

        monkeypatch.setattr(LocalStore, "list", late)
        (found,) = patient.findings("storage", probe_storage=True)
        assert found.problem.code == "listing-incomplete"

    def test_reads_that_return_old_or_other_bytes(self, patient, monkeypatch):
        read, put = LocalStore.read, LocalStore.put
        monkeypatch.setattr(LocalStore, "read", lambda s, p, start, n: read(s, p, start + 1, n))

        def once(store, path, data, **options):
            if not (path.endswith("/replaced") and data == b"22"):
                put(store, path, data, **options)

        monkeypatch.setattr(LocalStore, "put", once)
        found = patient.codes("storage", probe_storage=True)
        assert found == ["range-wrong", "read-stale"]

    def test_nothing_is_written_without_the_option(self, patient, monkeypatch):
        for name in ("put", "put_if_absent", "stage", "delete", "delete_directory"):
            monkeypatch.setattr(LocalStore, name, None)
        doctor = patient.doctor()
        assert list(doctor.findings()) == []
        assert "--probe-storage" in doctor.results["storage"].reason


class TestClocks:
    @pytest.fixture
    def storage_clock(self):
        return ManualClock()

    @pytest.mark.parametrize("probe_storage", [False, True])
    def test_this_machine_is_behind(self, patient, storage_clock, probe_storage):
        storage_clock.advance_ms(3 * 3_600_000)
        Admin(patient.root).create_topics([NewTopic("u")])
        (found,) = patient.findings("clocks", probe_storage=probe_storage)
        assert found.problem.code == "clock-apart"
        assert "3 h behind that of the storage" in found.message
        assert ("at least" in found.message) == (not probe_storage)

    def test_this_machine_is_ahead_which_only_a_probe_shows(self, patient):
        patient.clock.advance_ms(20 * 60_000)
        assert patient.findings("clocks") == []
        (found,) = patient.findings("clocks", probe_storage=True)
        assert "20 min ahead of that of the storage" in found.message

    def test_a_difference_below_the_limit_is_no_finding(self, patient):
        patient.clock.advance_ms(9 * 60_000)
        assert patient.findings("clocks", probe_storage=True) == []

    def test_two_brokers(self, patient, tmp_path, monkeypatch):
        Admin(patient.root).register_broker(1, tmp_path / "r1")
        head = LocalStore.head

        def slow(store, path):
            from dataclasses import replace

            found = head(store, path)
            is_other = store.url.endswith("r1")
            return replace(found, modified_us=found.modified_us - is_other * 7_200_000_000)

        monkeypatch.setattr(LocalStore, "head", slow)
        found = patient.findings("clocks", probe_storage=True)
        assert sorted(codes(found)) == ["brokers-clocks-apart", "clock-apart"]
        apart = next(each for each in found if each.problem.code == "brokers-clocks-apart")
        assert apart.message == "the clock of its storage is 2 h behind that of broker 0"

"""Object stores on a real S3 server: the conformance suite, and their own features."""

import multiprocessing
import pickle
import socket
import threading
import time
import traceback
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count

import obstore
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from spark_log.errors import (
    AlreadyExistsError,
    AuthorizationError,
    InvalidRootError,
    NotFoundError,
    StorageError,
    StorageFullError,
    StorageUnavailableError,
    UnknownOutcomeError,
    UnsupportedStoreError,
)
from spark_log.storage import open_store
from spark_log.storage.object import object_store
from spark_log.storage.object.clients import ObjectClients
from spark_log.storage.object.location import ObjectLocation
from spark_log.storage.object.object_store import ObjectStore
from spark_log.testing.servers.faulty_proxy import FaultyProxy
from spark_log.testing.servers.s3_server import run_s3_server
from spark_log.testing.store_stateful import StoreStateMachine
from spark_log.testing.store_suite import StoreSuite


@pytest.fixture
def root(s3_server):
    return f"{s3_server.new_bucket()}/a root/of ours"


@pytest.fixture
def store(root, s3_server):
    return open_store(root, s3_server.storage_options)


@pytest.fixture
def proxy(s3_server):
    with FaultyProxy(s3_server.endpoint_url) as proxy:
        yield proxy


@pytest.fixture
def unused_tcp_port():
    """Return a port on which no server listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture
def unsure(root, s3_server, proxy):
    """The same store behind a proxy, whose rule injects faults."""
    return open_store(root, {**s3_server.storage_options, "endpoint_url": proxy.url})


def multipart(store):
    """The same store, uploading every staged file in parts."""
    return ObjectStore(store._location, multipart_bytes=1)  # noqa: SLF001


def content(store, path):
    return store.open_buffer(path).to_pybytes()


def all_objects(root, server):
    """The paths of all objects below a root, also of hidden ones, as another program lists them."""
    location = ObjectLocation.parse(root, server.storage_options)
    return [each["path"] for each in obstore.list(ObjectClients(location).reader).collect()]


def names(store, directory=""):
    return [file.name for file in store.list(directory)]


class Sometimes:
    """Return a rule with a fault for the first matching requests."""

    def __init__(self, fault, times=1, counts=lambda request: request.is_conditional):
        self.fault = fault
        self.left = times
        self.counts = counts

    def __call__(self, request):
        if not self.counts(request) or self.left <= 0:
            return "pass"
        self.left -= 1
        return self.fault


def always(fault):
    return Sometimes(fault, times=10**9)


# --- the port ------------------------------------------------------------------------------------


class TestS3Store(StoreSuite):
    @pytest.fixture
    def store(self, store):
        return store


class TestS3StoreWithUploadsInParts(StoreSuite):
    contenders = 3

    @pytest.fixture
    def store(self, store):
        return multipart(store)


def test_random_operations_do_what_they_would_to_a_dict(s3_server):
    class S3StoreMachine(StoreStateMachine):
        def make_store(self):
            location = ObjectLocation.parse(s3_server.new_bucket(), s3_server.storage_options)
            return ObjectStore(location, multipart_bytes=1_000)

    sizes = settings(max_examples=15, stateful_step_count=25)
    run_state_machine_as_test(S3StoreMachine, settings=sizes)


# --- answers that are lost -----------------------------------------------------------------------


def put_bytes(store, path):
    store.put_if_absent(path, b"ours")


def put_staged(store, path):
    with store.stage("topic") as staged:
        staged.sink.write(b"ours")
        store.put_if_absent(path, staged)


def put_in_parts(store, path):
    put_staged(multipart(store), path)


@pytest.mark.parametrize("put", [put_bytes, put_staged, put_in_parts])
class TestLostAnswers:
    def test_a_put_that_took_effect_is_recognised_as_ours(self, put, store, unsure, proxy):
        proxy.rule = Sometimes("lose answer")
        put(unsure, "topic/0.log")
        assert content(store, "topic/0.log") == b"ours"
        assert proxy.rule.left == 0

    def test_a_put_that_never_arrived_is_sent_again(self, put, store, unsure, proxy):
        proxy.rule = Sometimes("lose request", times=2)
        put(unsure, "topic/0.log")
        assert content(store, "topic/0.log") == b"ours"

    def test_a_put_delivered_twice_does_not_lose_to_itself(self, put, store, unsure, proxy):
        proxy.rule = always("deliver twice")
        put(unsure, "topic/0.log")
        assert content(store, "topic/0.log") == b"ours"
        with pytest.raises(AlreadyExistsError):
            unsure.put_if_absent("topic/0.log", b"another's")

    @pytest.mark.parametrize("fault", ["lose answer", "lose request", "deliver twice", 500, 503])
    def test_a_put_that_lost_to_another_is_never_taken_for_ours(
        self, put, fault, store, unsure, proxy
    ):
        store.put_if_absent("topic/0.log", b"another's")
        proxy.rule = Sometimes(fault)
        with pytest.raises(AlreadyExistsError) as caught:
            put(unsure, "topic/0.log")
        assert caught.value.path == "topic/0.log"
        assert content(store, "topic/0.log") == b"another's"

    def test_a_put_without_any_answer_has_an_unknown_outcome(self, put, store, unsure, proxy):
        proxy.rule = always("lose request")
        with pytest.raises(UnknownOutcomeError) as caught:
            put(unsure, "topic/0.log")
        assert caught.value.path == "topic/0.log"
        assert not caught.value.is_visible
        with pytest.raises(NotFoundError):
            store.head("topic/0.log")

    def test_a_put_that_arrives_after_we_gave_up_takes_the_name_or_loses(
        self, put, store, unsure, proxy
    ):
        proxy.rule = always("deliver late")
        for path in ("topic/0.log", "topic/1.log"):
            with pytest.raises(UnknownOutcomeError):
                put(unsure, path)
        store.put_if_absent("topic/1.log", b"another's")
        if put is not put_in_parts:  # its upload was discarded
            assert 200 in proxy.deliver_late()
            assert content(store, "topic/0.log") == b"ours"
        proxy.deliver_late()
        assert content(store, "topic/1.log") == b"another's"

    def test_an_outcome_that_cannot_be_checked_is_unknown(self, put, store, unsure, proxy):
        def rule(request):
            if request.is_conditional:
                return "lose answer"
            return 403 if request.method in ("GET", "HEAD") else "pass"

        proxy.rule = rule
        with pytest.raises(UnknownOutcomeError):
            put(unsure, "topic/0.log")
        assert content(store, "topic/0.log") == b"ours"

    @pytest.mark.parametrize("status", [409, 429, 500, 502, 503, 504])
    def test_a_request_to_a_busy_server_is_repeated(self, put, status, store, unsure, proxy):
        proxy.rule = Sometimes(status, times=2)
        put(unsure, "topic/0.log")
        assert content(store, "topic/0.log") == b"ours"

    @pytest.mark.parametrize(
        ("status", "kind"),
        [(400, StorageError), (403, AuthorizationError), (507, StorageFullError)],
    )
    def test_a_refusal_is_known_to_have_done_nothing(self, put, status, kind, store, unsure, proxy):
        proxy.rule = always(status)
        with pytest.raises(StorageError, match=rf"^topic/0\.log: .*HTTP {status}") as caught:
            put(unsure, "topic/0.log")
        assert type(caught.value) is kind
        proxy.rule = Sometimes("lose request")
        put(unsure, "topic/0.log")

    def test_a_refusal_after_a_lost_answer_leaves_the_outcome_unknown(self, put, unsure, proxy):
        faults = iter(["deliver late", 403])
        proxy.rule = lambda request: next(faults) if request.is_conditional else "pass"
        with pytest.raises(UnknownOutcomeError):
            put(unsure, "topic/0.log")

    def test_no_hidden_object_is_left(self, put, root, unsure, proxy, s3_server):
        proxy.rule = Sometimes("lose answer")
        put(unsure, "topic/0.log")
        assert all_objects(root, s3_server) == ["topic/0.log"]


def test_with_a_third_of_the_answers_lost_racing_writers_agree_on_one_winner_each(
    store, unsure, proxy
):
    numbers = count()
    faults = ["lose answer", "pass", "lose request", "pass", "deliver twice", "pass"]
    proxy.rule = lambda request: faults[next(numbers) % len(faults)]
    paths = [f"topic/{number}" for number in range(20)]

    def contend(writer):
        won = []
        for path in paths:
            with suppress(AlreadyExistsError):
                unsure.put_if_absent(path, f"{writer}".encode())
                won.append(path)
        return won

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(contend, range(4)))

    assert sorted(path for paths in won for path in paths) == sorted(paths)
    for writer, winner in enumerate(won):
        for path in winner:
            assert content(store, path) == f"{writer}".encode()


def test_equal_bytes_of_two_writers_are_two_puts(store):
    store.put_if_absent("marker", b"")
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("marker", b"")


def test_a_lost_race_costs_two_requests(unsure, store, proxy):
    store.put_if_absent("topic/0.log", b"another's")
    with pytest.raises(AlreadyExistsError):
        unsure.put_if_absent("topic/0.log", b"ours")
    assert [request.method for request in proxy.requests] == ["PUT", "HEAD"]


def test_an_upload_in_parts_is_made_once_however_many_names_it_tries(unsure, store, proxy):
    for number in range(3):
        store.put_if_absent(f"topic/{number}", b"another's")
    with multipart(unsure).stage("topic") as staged:
        staged.sink.write(b"x" * 20_000_000)
        for number in range(3):
            with pytest.raises(AlreadyExistsError):
                multipart(unsure).put_if_absent(f"topic/{number}", staged)
        multipart(unsure).put_if_absent("topic/3", staged)
    assert store.head("topic/3").size_bytes == 20_000_000
    assert sum(len(request.body) >= 2_000_000 for request in proxy.requests) == 3


def test_reads_are_repeated_when_answers_are_lost(unsure, store, proxy):
    store.put_if_absent("topic/0.log", b"0123456789")
    for way in (
        lambda: unsure.read("topic/0.log", 2, 3).to_pybytes() == b"234",
        lambda: unsure.read_tail("topic/0.log", 3).to_pybytes() == b"789",
        lambda: content(unsure, "topic/0.log") == b"0123456789",
        lambda: names(unsure, "topic") == ["0.log"],
        lambda: unsure.head("topic/0.log").size_bytes == 10,
    ):
        for fault in ("lose answer", "lose request", 500, 503):
            proxy.rule = Sometimes(fault, counts=lambda request: True)
            assert way()
            assert proxy.rule.left == 0


# --- roots ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unsigned_server():
    """A server that does not check signatures, so that a proxy may change requests."""
    with run_s3_server(moto=True) as server:
        yield server


class TestCreateRoot:
    def test_create_root_leaves_no_objects(self, store, root, s3_server):
        store.create_root()
        assert all_objects(root, s3_server) == []

    @pytest.mark.parametrize(
        ("method", "reason"),
        [
            ("PUT", "ignores the condition of a PUT"),
            ("POST", "ignores the condition when it completes a multipart upload"),
        ],
    )
    def test_a_server_that_ignores_conditions_is_refused(self, method, reason, unsigned_server):
        root = unsigned_server.new_bucket()
        with FaultyProxy(unsigned_server.endpoint_url) as proxy:
            options = {**unsigned_server.storage_options, "endpoint_url": proxy.url}
            store = open_store(root, options)
            store.create_root()
            proxy.rule = lambda request: "ignore condition" if request.method == method else "pass"
            with pytest.raises(UnsupportedStoreError, match=reason) as caught:
                store.create_root()
            assert caught.value.message.startswith(f"{root} cannot be a root")
            assert all_objects(root, unsigned_server) == []

    def test_a_server_where_two_concurrent_writers_succeed_is_refused(
        self, unsigned_server, monkeypatch
    ):
        # A server that checks before it writes: all concurrent writers succeed.
        with FaultyProxy(unsigned_server.endpoint_url) as proxy:
            options = {**unsigned_server.storage_options, "endpoint_url": proxy.url}
            store = open_store(unsigned_server.new_bucket(), options)
            # The first name is tried by one writer, the next one by several at once.
            came: Counter[str] = Counter()
            written: defaultdict[str, threading.Event] = defaultdict(threading.Event)
            came_twice = threading.Event()

            def rule(request):
                if request.method != "PUT" or not request.is_conditional:
                    return "pass"
                came[request.path] += 1
                if len(came) > 1 and came[request.path] > 1:
                    came_twice.set()
                return "pass" if written[request.path].is_set() else "ignore condition"

            real = proxy._forward  # noqa: SLF001

            def forward(request, without=()):
                if request.method == "PUT" and request.is_conditional and len(came) > 1:
                    assert came_twice.wait(60)
                answer = real(request, without)
                if request.method == "PUT":
                    written[request.path].set()
                return answer

            proxy.rule = rule
            monkeypatch.setattr(proxy, "_forward", forward)
            with pytest.raises(
                UnsupportedStoreError, match="of 8 concurrent writers created the same"
            ):
                store.create_root()
            assert max(came.values()) > 2

    @pytest.mark.parametrize("method", ["PUT", "POST"])
    @pytest.mark.parametrize("status", [400, 501])
    def test_a_server_without_conditions_is_refused(self, method, status, unsure, proxy):
        proxy.rule = lambda request: (
            status if request.is_conditional and request.method == method else "pass"
        )
        with pytest.raises(UnsupportedStoreError, match=f"HTTP {status}"):
            unsure.create_root()

    def test_a_server_that_loses_metadata_is_refused(self, unsure, proxy, monkeypatch):
        real = proxy._forward  # noqa: SLF001

        def without_metadata(request, without=()):
            status, fields, body = real(request, without)
            return status, [pair for pair in fields if "sparklog" not in pair[0].lower()], body

        monkeypatch.setattr(proxy, "_forward", without_metadata)
        with pytest.raises(UnsupportedStoreError, match="does not keep the object metadata"):
            unsure.create_root()

    def test_a_missing_bucket_is_named(self, s3_server):
        store = open_store("s3://no-such-bucket/root", s3_server.storage_options)
        with pytest.raises(
            InvalidRootError, match="bucket 'no-such-bucket' does not exist; create it"
        ):
            store.create_root()

    def test_an_unavailable_server_is_a_retriable_error(self, unsure, proxy):
        proxy.rule = lambda request: 503
        with pytest.raises(StorageError) as caught:
            unsure.create_root()
        assert not isinstance(caught.value, UnsupportedStoreError)


# --- credentials ---------------------------------------------------------------------------------


class TestCredentials:
    def test_credentials_are_never_shown(self, root, s3_server):
        store = open_store(root, {**s3_server.storage_options, "secret": "pa55word"})
        shown = [repr(store), store.url, str(vars(store))]
        for way in (
            store.create_root,
            lambda: store.put_if_absent("a", b""),
            lambda: store.put("a", b""),
            lambda: store.read("a", 0, 1),
            lambda: list(store.list("")),
            lambda: store.delete("a"),
            lambda: store.delete_directory("a"),
        ):
            with pytest.raises(StorageError, match="check the credentials") as caught:
                way()
            shown += [repr(caught.value), str(vars(caught.value))]
            shown += traceback.format_exception(caught.value)
        assert "pa55" not in "".join(shown)
        assert s3_server.endpoint_url not in "".join(shown)  # nor anything else of the request

    def test_credentials_are_pickled_with_the_store(self, store):
        store.put_if_absent("a", b"here")
        assert content(pickle.loads(pickle.dumps(store)), "a") == b"here"

    def test_given_keys_are_used_without_the_session_token_of_the_environment(
        self, root, s3_server, monkeypatch
    ):
        monkeypatch.setenv("AWS_SESSION_TOKEN", "another's")
        store = open_store(root, s3_server.storage_options)
        store.put_if_absent("a", b"here")
        assert content(store, "a") == b"here"

    def test_credentials_may_come_from_the_environment(self, root, s3_server, monkeypatch):
        options = s3_server.storage_options
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["key"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["secret"])
        monkeypatch.setenv("AWS_ENDPOINT_URL", options["endpoint_url"])
        store = open_store(root)
        store.put_if_absent("a", b"here")
        assert content(store, "a") == b"here"


# --- the rest ------------------------------------------------------------------------------------


@pytest.fixture
def subdirectories(store):
    for topic in ("a", "b", "c"):
        for number in range(5):
            store.put_if_absent(f"{topic}/{number}", b"", sync=False)
    store.put_if_absent("b-", b"")
    store.put_if_absent("between", b"")
    store.put_if_absent("z", b"")


@pytest.mark.usefixtures("subdirectories")
def test_a_directory_with_small_subdirectories_is_listed_by_one_request(unsure, proxy):
    assert names(unsure) == ["b-", "between", "z"]
    assert len(proxy.requests) == 1
    assert list(unsure.list_directories("")) == ["a", "b", "c"]
    assert len(proxy.requests) == 2


@pytest.mark.usefixtures("subdirectories")
@pytest.mark.parametrize("page", range(1, 20))
def test_a_page_may_end_anywhere(store, monkeypatch, page):
    monkeypatch.setattr(object_store, "_PAGE", page)
    assert names(store) == ["b-", "between", "z"]
    assert list(store.list_directories("")) == ["a", "b", "c"]
    assert [file.name for file in store.list("", start_after="b-")] == ["between", "z"]


def test_what_is_left_of_a_large_subdirectory_is_skipped(unsure, store, proxy):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store.put(f"large/{n:05d}", b""), range(2_100)))
    store.put_if_absent("a", b"")
    store.put_if_absent("z", b"")
    assert names(unsure) == ["a", "z"]
    assert len(proxy.requests) == 2


def test_a_listing_takes_its_pages_as_they_are_needed(unsure, store, proxy, monkeypatch):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store.put(f"topic/{n:05d}", b""), range(2_100)))
    listing = unsure.list("topic", start_after="00049")
    assert next(listing).name == "00050"
    assert len(proxy.requests) <= 2
    assert [file.name for file in listing] == [f"{n:05d}" for n in range(51, 2_100)]
    assert len(proxy.requests) == 3


def test_a_modification_time_is_never_before_the_write(store):
    before_us = time.time_ns() // 1_000
    store.put_if_absent("a", b"")
    assert 0 <= store.head("a").modified_us - before_us < 5_000_000


def test_uploads_in_parts_take_constant_memory(store):
    pytest.importorskip("resource")
    size_bytes = 200_000_000

    def resident_kb():
        with open("/proc/self/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        return int(fields["RssAnon"].split()[0])

    before = resident_kb()
    peak = [0]
    done = threading.Event()

    def watch():
        while not done.wait(0.005):
            peak[0] = max(peak[0], resident_kb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with store.stage("topic") as staged:
            for _ in range(size_bytes // 4_000_000):
                staged.sink.write(bytes(4_000_000))
            store.put_if_absent("topic/0.log", staged)
    finally:
        done.set()
        watcher.join()
    assert store.head("topic/0.log").size_bytes == size_bytes
    # Several parts are on their way at once: up to 51 MB on a busy machine.
    assert (peak[0] - before) * 1024 < size_bytes / 3


def _try_in_child(store, results):
    try:
        store.head("a")
        results.put("answered")
    except StorageError as error:
        results.put(error.message)


def test_a_forked_process_gets_an_error_instead_of_hanging(store):
    store.put_if_absent("a", b"")
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_try_in_child, args=(store, results))
    child.start()
    assert "was forked from one that had used an object store" in results.get(timeout=60)
    child.join(timeout=60)
    assert child.exitcode == 0


OPTIONS = {"key": "a-key", "secret": "a-secret", "region": "us-east-1"}


class TestWithoutAServer:
    """Errors without an answer, and without a request."""

    def test_a_store_that_cannot_be_reached_is_unavailable_and_says_where(self, unused_tcp_port):
        endpoint = f"127.0.0.1:{unused_tcp_port}"
        options = {**OPTIONS, "endpoint_url": f"http://{endpoint}"}
        store = open_store("s3://bucket/root", options, request_timeout_ms=200)
        for request in (
            lambda: store.head("x"),
            lambda: store.read("x", 0, 1),
            lambda: store.read_tail("x", 1),
            lambda: store.open_buffer("x"),
            lambda: list(store.list("x")),
            lambda: store.put("x", b""),
            lambda: store.delete("x"),
            lambda: store.put_if_absent("x", b""),
        ):
            with pytest.raises(StorageUnavailableError, match=endpoint) as told:
                request()
            assert told.value.retriable
            assert "endpoint_url" in str(told.value)

    def test_the_reason_is_said(self, unused_tcp_port):
        for endpoint, reason in (
            (f"http://127.0.0.1:{unused_tcp_port}", "connection refused"),
            ("http://no-such-host.invalid", "its name cannot be resolved"),
        ):
            options = {**OPTIONS, "endpoint_url": endpoint}
            store = open_store("s3://bucket/root", options, request_timeout_ms=200)
            with pytest.raises(StorageUnavailableError, match=rf"does not answer \({reason}\)"):
                store.head("x")

    def test_a_server_without_tls_will_not_have_it_later(self, s3_server):
        endpoint = s3_server.endpoint_url.replace("http:", "https:")
        store = open_store("s3://bucket/root", {**OPTIONS, "endpoint_url": endpoint})
        with pytest.raises(StorageError, match="it does not speak TLS") as told:
            store.head("x")
        assert not told.value.retriable

    def test_a_panic_of_the_client_is_an_error_like_others(self, monkeypatch):
        """A panic of obstore is a BaseException, which would end threads, tasks and programs."""
        location = ObjectLocation.parse(
            "s3://bucket", {**OPTIONS, "endpoint_url": "http://127.0.0.1:9"}
        )
        location.config["access_key_id"] = "a-key\n"  # as a credentials file may contain
        store = ObjectStore(location)
        for request in (
            lambda: store.head("x"),
            lambda: store.read("x", 0, 1),
            lambda: store.read_tail("x", 1),
            lambda: store.open_buffer("x"),
            lambda: list(store.list("x")),
            lambda: store.put("x", b""),
            lambda: store.delete("x"),
            lambda: store.put_if_absent("x", b""),
            store.create_root,
        ):
            with pytest.raises(StorageError, match=r"newline|lost") as told:
                request()
            assert "a-key" not in "".join(traceback.format_exception(told.value))

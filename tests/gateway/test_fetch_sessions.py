"""Fetch sessions: which one a request uses, and which one has to make room."""

import random
from itertools import count

import pytest

from spark_log.gateway import fetch_sessions
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.fetch_sessions import (
    EVICTION_MS,
    FINAL_EPOCH,
    CachedPartition,
    FetchSessions,
)


def partitions(number, first=0, *, offset=0, topic="t"):
    return [CachedPartition(topic, "", each, offset, 1 << 20, -1) for each in range(first, number)]


class Client:
    """A client with a session."""

    def __init__(self, sessions, size, now_ms=0.0):
        self.sessions = sessions
        self.epochs = count(1)
        self.id = sessions.maybe_create(partitions(size), uses_topic_ids=False, now_ms=now_ms)

    def fetch(self, wanted=(), forgotten=(), *, epoch=None, now_ms=0.0, uses_topic_ids=False):
        return self.sessions.new_context(
            self.id,
            next(self.epochs) if epoch is None else epoch,
            wanted,
            forgotten,
            uses_topic_ids=uses_topic_ids,
            now_ms=now_ms,
        )


@pytest.fixture
def sessions():
    return FetchSessions(3, choose_id=random.Random(1))


def keys(session):
    return [key for _, key in session.partitions]


class TestRequests:
    def test_use_the_session_that_they_name(self, sessions):
        client, other = Client(sessions, 2), Client(sessions, 3)
        assert client.id != other.id
        assert keys(client.fetch().session) == [0, 1]
        assert keys(other.fetch().session) == [0, 1, 2]

    def test_add_change_and_forget_partitions(self, sessions):
        client = Client(sessions, 3)
        found = client.fetch(partitions(2, 1, offset=7) + partitions(5, 4), [("t", 0), ("t", 9)])
        assert keys(found.session) == [1, 2, 4]
        assert [each.fetch_offset for each in found.session.partitions.values()] == [7, 0, 0]
        assert sessions.partitions == 3
        assert [each.partitions for each in found.session.topics()] == [
            list(found.session.partitions.values())
        ]

    def test_of_an_unknown_session_are_refused(self, sessions):
        client = Client(sessions, 1)
        client.id += 1
        assert client.fetch().error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def test_of_another_epoch_are_refused_and_change_nothing(self, sessions):
        client = Client(sessions, 1)
        for epoch in (2, 17):
            refused = client.fetch(partitions(5), epoch=epoch)
            assert refused.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert keys(client.fetch(epoch=1).session) == [0]
        assert client.fetch(epoch=1).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH

    def test_that_name_topics_in_the_other_way_are_refused(self, sessions):
        client = Client(sessions, 1)
        refused = client.fetch(uses_topic_ids=True)
        assert refused.error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    def test_begin_again_at_the_epoch_1_after_the_largest(self, sessions):
        client = Client(sessions, 1)
        client.fetch().session.epoch = 2**31 - 1
        assert not client.fetch(epoch=2**31 - 1).error
        assert not client.fetch(epoch=1).error

    def test_are_overtaken_by_the_next_one(self, sessions):
        client = Client(sessions, 1)
        first = client.fetch()
        assert not first.is_overtaken
        second = client.fetch()
        assert first.is_overtaken
        assert not second.is_overtaken

    @pytest.mark.parametrize("epoch", [0, FINAL_EPOCH])
    def test_without_a_session_close_that_which_they_name(self, sessions, epoch):
        client = Client(sessions, 4)
        found = client.fetch(epoch=epoch)
        assert (found.session, found.wants_session) == (None, epoch == 0)
        assert (len(sessions), sessions.partitions) == (0, 0)
        assert client.fetch().error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def test_that_forget_all_partitions_close_the_session(self, sessions):
        client = Client(sessions, 1)
        found = client.fetch(forgotten=[("t", 0)])
        assert (found.error, found.session, found.wants_session) == (0, None, False)
        assert (len(sessions), sessions.partitions) == (0, 0)


class TestAnswers:
    def told(self, each, **fields):
        defaults = {"error_code": 0, "high_watermark": 5, "log_start_offset": 1}
        return each.answer(**{**defaults, "must_respond": False, **fields})

    def test_need_what_the_client_was_not_told(self):
        (each,) = partitions(1)
        assert self.told(each)
        assert not self.told(each)
        assert self.told(each, high_watermark=6)
        assert self.told(each, high_watermark=6, log_start_offset=2)
        assert not self.told(each, high_watermark=6, log_start_offset=2)
        assert self.told(each, high_watermark=6, log_start_offset=2, must_respond=True)

    def test_need_each_error_and_the_end_of_it(self):
        (each,) = partitions(1)
        self.told(each)
        assert self.told(each, error_code=3)
        assert self.told(each, error_code=3)
        assert self.told(each)

    def test_let_others_go_before(self, sessions):
        session = Client(sessions, 3).fetch().session
        session.move_to_end(session.partitions["t", 0])
        assert keys(session) == [1, 2, 0]


class TestRoom:
    def test_is_not_made_by_sessions_that_are_new_and_used(self, sessions):
        clients = [Client(sessions, 1) for _ in range(3)]
        assert Client(sessions, 9, now_ms=EVICTION_MS).id == 0
        assert all(not each.fetch().error for each in clients)

    def test_is_made_by_the_one_that_was_unused_for_longest(self, sessions):
        clients = [Client(sessions, 9) for _ in range(3)]
        clients[2].fetch(now_ms=1.0)
        clients[0].fetch(now_ms=2.0)
        late_ms = EVICTION_MS + 1.5
        assert Client(sessions, 1, now_ms=late_ms).id
        assert Client(sessions, 1, now_ms=late_ms).id
        assert Client(sessions, 1, now_ms=late_ms).id == 0
        assert sessions.evictions == 2
        refused = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert [each.fetch().error for each in clients] == [0, refused, refused]

    def test_is_made_by_the_smallest_one_for_a_larger_one_if_it_is_not_new(self, sessions):
        clients = [Client(sessions, size) for size in (4, 2, 3)]
        late_ms = EVICTION_MS + 1
        for each in clients:
            each.fetch(now_ms=late_ms)
        assert Client(sessions, 2, now_ms=late_ms).id == 0
        assert Client(sessions, 3, now_ms=late_ms).id
        assert clients[1].fetch().error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert Client(sessions, 3, now_ms=late_ms).id == 0  # the newest one does not make room
        assert Client(sessions, 4, now_ms=late_ms).id
        assert clients[2].fetch().error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert sessions.partitions == 4 + 3 + 4

    def test_is_counted_as_sessions_grow_and_shrink(self, sessions):
        client = Client(sessions, 2)
        late_ms = EVICTION_MS + 1
        client.fetch(partitions(9), now_ms=late_ms)
        assert sessions.partitions == 9
        client.fetch(forgotten=[("t", number) for number in range(8)], now_ms=late_ms)
        assert sessions.partitions == 1
        for _ in range(2):
            Client(sessions, 1, now_ms=late_ms)
        assert Client(sessions, 2, now_ms=late_ms).id  # instead of that which has shrunk
        assert client.fetch().error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def test_is_not_there_without_slots(self):
        assert Client(FetchSessions(0), 1).id == 0

    def test_ends_at_the_number_of_all_partitions(self, sessions, monkeypatch):
        monkeypatch.setattr(fetch_sessions, "MAX_CACHED_PARTITIONS", 10)
        client, other = Client(sessions, 4), Client(sessions, 5)
        assert Client(sessions, 2).id == 0
        assert not client.fetch(partitions(5)).error
        assert client.fetch(partitions(6)).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert (len(sessions), sessions.partitions, sessions.evictions) == (1, 5, 1)
        assert not other.fetch().error


class FollowingClient:
    """A client that knows of its partitions what sessions told it, and the log that they tell of.

    Attributes:
        log: by partition: error, high watermark and log start offset.
        known: what the client knows of the partitions that it needs.
    """

    def __init__(self, sessions, chance):
        self.sessions = sessions
        self.chance = chance
        self.log = dict.fromkeys(range(6), (0, 0, 0))
        self.known = {}
        self.needed = set()
        self.id = self.epoch = 0

    def change_log(self):
        number = self.chance.randrange(6)
        _, end, start = self.log[number]
        self.log[number] = self.chance.choice(
            [(3, end, start), (0, end, start), (0, end + 1, start), (0, end, end)]
        )

    def fetch(self):
        """Send what has changed, or everything; the answer may be lost."""
        wanted = {number for number in range(6) if self.chance.random() < 0.6}
        is_full = self.epoch <= 0
        added = wanted if is_full else wanted - self.needed
        forgotten = set() if is_full else self.needed - wanted
        requested = [each for each in partitions(6) if each.partition in added]
        context = self.sessions.new_context(
            self.id,
            self.epoch,
            requested,
            [("t", number) for number in forgotten],
            uses_topic_ids=False,
            now_ms=0.0,
        )
        self.needed = wanted
        assert not context.error
        session = context.session
        read = list(session.partitions.values()) if session else requested
        answered = [each for each in read if self.answer(each) or session is None]
        session_id = session.session_id if session else 0
        if context.wants_session:
            session_id = self.sessions.maybe_create(requested, uses_topic_ids=False, now_ms=0.0)
        if self.chance.random() < 0.1:  # the answer is lost
            self.epoch = 0
            return
        self.known = {number: self.known.get(number) for number in wanted}
        self.known.update((each.partition, self.log[each.partition]) for each in answered)
        self.id, self.epoch = session_id, self.epoch + 1 if session_id else 0
        assert self.known == {number: self.log[number] for number in wanted}

    def answer(self, each):
        error, end, start = self.log[each.partition]
        return each.answer(
            error_code=error, high_watermark=end, log_start_offset=start, must_respond=False
        )


@pytest.mark.parametrize("slots", [3, 0])
def test_a_client_knows_by_changes_what_full_fetches_would_tell(slots):
    for seed in range(200):
        client = FollowingClient(FetchSessions(slots), random.Random(seed))
        for _ in range(40):
            client.change_log()
            client.fetch()
        assert len(client.sessions) <= slots

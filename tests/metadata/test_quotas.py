"""Quotas of clients, and the pauses that enforce them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.metadata.quotas import BURST_S, UNLIMITED, ClientQuota

STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 400, 999, 1_000, 1_001, 5_000, 11_000, 12_000, 60_000]),
        st.one_of(st.integers(0, 10_000), st.just(1_100), st.just(2_200), st.just(100_000)),
    ),
    max_size=60,
)
"""How long nothing happens, and how many bytes go by then."""

QUOTAS = st.sampled_from([1, 100, 1_000, 1_000_000])


def limited(bytes_per_second):
    quota = ClientQuota()
    quota.change(bytes_per_second)
    return quota


def left_bytes(events, bytes_per_second):
    """The model: the smallest remaining allowance over all periods that end now."""
    end_ms = events[-1][0]
    return min(
        bytes_per_second * (BURST_S + (end_ms - begin_ms) / 1_000)
        - sum(size_bytes for _, size_bytes in events[first:])
        for first, (begin_ms, _) in enumerate(events)
    )


class TestPauses:
    def test_without_a_quota_nobody_waits(self):
        quota = ClientQuota()
        assert quota.bytes_per_second == UNLIMITED
        assert quota.record(10**15, 0) == 0
        assert not quota.is_throttled(0)

    def test_the_share_of_eleven_seconds_may_be_had_at_once_and_what_is_more_waits(self):
        quota = limited(1_000)
        assert quota.record(11_000, 0) == 0
        assert quota.record(500, 0) == 500
        assert quota.is_throttled(499)
        assert not quota.is_throttled(500)
        assert quota.record(1_000, 500) == 1_000

    def test_who_was_idle_has_no_more_than_that(self):
        quota = limited(1_000)
        quota.record(1, 0)
        assert quota.record(12_000, 10**9) == 1_000

    @given(steps=STEPS, bytes_per_second=QUOTAS)
    def test_are_those_of_the_plain_model(self, steps, bytes_per_second):
        quota = limited(bytes_per_second)
        events, now_ms = [], 0
        for idle_ms, size_bytes in steps:
            now_ms += idle_ms
            events.append((now_ms, size_bytes))
            pause_ms = max(0, -left_bytes(events, bytes_per_second) * 1_000 / bytes_per_second)
            assert quota.record(size_bytes, now_ms) == pytest.approx(pause_ms, abs=1e-3)
            assert quota.is_throttled(now_ms + pause_ms - 1e-2) == (pause_ms > 1e-2)
            assert not quota.is_throttled(now_ms + pause_ms + 1e-2)

    @given(steps=STEPS, bytes_per_second=QUOTAS)
    def test_who_keeps_them_is_within_the_quota_in_any_time(self, steps, bytes_per_second):
        quota = limited(bytes_per_second)
        now_ms, done = 0.0, []
        for pause_ms, size_bytes in steps:
            now_ms = max(now_ms + pause_ms, quota.throttled_until_ms)
            quota.record(size_bytes, now_ms)
            done.append((now_ms, size_bytes))
        for first, (begin_ms, _) in enumerate(done):
            before_bytes = 0
            for end_ms, size_bytes in done[first:]:
                seconds = (end_ms - begin_ms) / 1_000 + BURST_S
                assert before_bytes <= bytes_per_second * seconds + 1e-3
                before_bytes += size_bytes

    @pytest.mark.parametrize("share", [0.1, 1, 3, 22, 300])
    def test_who_always_has_more_goes_as_fast_as_it_may(self, share):
        quota, now_ms, done_bytes = limited(1_000), 0.0, 0
        while now_ms < 3_600_000:
            done_bytes += int(share * 1_000)
            quota.record(int(share * 1_000), now_ms)
            now_ms = max(now_ms, quota.throttled_until_ms)
        assert done_bytes == 1_000 * (BURST_S + now_ms / 1_000)


class TestChange:
    @pytest.mark.parametrize("changed", [10, 100_000, UNLIMITED])
    def test_begins_anew(self, changed):
        quota = limited(1_000)
        quota.record(1_000_000, 0)
        quota.change(1_000)
        assert quota.is_throttled(10_000)
        quota.change(changed)
        assert not quota.is_throttled(0)
        assert quota.record(BURST_S * changed, 0) == 0
        assert (quota.record(changed, 0) == 1_000) == (changed != UNLIMITED)

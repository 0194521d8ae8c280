"""The number of gateways that follows from a history of their loads."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.errors import InvalidConfigurationError
from spark_log.jobs.serving import Autoscaler, GatewayLoads, ScalingPolicy, decide

POLICY = ScalingPolicy(1, 3, busy_load=0.8, busy_timeout_ms=4_000, idle_timeout_ms=8_000)
SERVED = ScalingPolicy(2, 3, busy_load=0.8, busy_timeout_ms=4_000, idle_timeout_ms=8_000)


def history(*loads, interval_ms=1_000):
    """Return a history: for each moment the loads of gateways 0, 1, …; None: it does not serve."""
    return [
        GatewayLoads(
            moment * interval_ms,
            {number: load for number, load in enumerate(those) if load is not None},
        )
        for moment, those in enumerate(loads)
    ]


BUSY, IDLE = [0.9], [0.1, 0.1]


@pytest.mark.parametrize(
    ("policy", "count", "loads", "expected"),
    [
        pytest.param(POLICY, 1, [], 1, id="nothing is known"),
        pytest.param(POLICY, 1, [BUSY] * 5, 2, id="busy for the whole timeout"),
        pytest.param(POLICY, 1, [BUSY] * 4, 1, id="busy for less"),
        pytest.param(POLICY, 1, [BUSY] * 3 + [[0.7]] + [BUSY] * 4, 1, id="a pause between"),
        pytest.param(POLICY, 1, [[0.1]] * 9 + [BUSY] * 5, 2, id="idle before"),
        pytest.param(POLICY, 1, [[0.8]] * 5, 2, id="just as high as the mark"),
        pytest.param(POLICY, 2, [[1.0, 0.5]] * 5, 2, id="one is busy, all are not"),
        pytest.param(POLICY, 2, [[1.0, 0.6]] * 5, 3, id="all are busy"),
        pytest.param(POLICY, 2, [[1.0, None]] * 5, 2, id="one waits for an executor"),
        pytest.param(POLICY, 2, [[None, 1.0]] * 5, 2, id="one was lost"),
        pytest.param(POLICY, 2, [[1.0, None]] + [[1.0, 1.0]] * 4, 2, id="it serves for less"),
        pytest.param(POLICY, 3, [[1.0] * 3] * 9, 3, id="there are as many as there may be"),
        pytest.param(POLICY, 2, [IDLE] * 9, 1, id="idle for the whole timeout"),
        pytest.param(POLICY, 2, [IDLE] * 8, 2, id="idle for less"),
        pytest.param(POLICY, 2, [IDLE] * 4 + [[0.4, 0.1]] + [IDLE] * 8, 2, id="work between"),
        pytest.param(POLICY, 2, [[0.2, 0.2]] * 9, 2, id="the other one would be at the low mark"),
        pytest.param(POLICY, 3, [[0.3, 0.2, 0.2]] * 9, 2, id="two others would be below it"),
        pytest.param(POLICY, 2, [[0.1, None]] * 9, 1, id="idle, and one waits for an executor"),
        pytest.param(POLICY, 2, [[None, 0.1]] * 9, 2, id="only the newest serves"),
        pytest.param(POLICY, 2, [[None, None]] * 9, 2, id="none serves"),
        pytest.param(SERVED, 2, [IDLE] * 9, 2, id="there are as few as there may be"),
    ],
)
def test_the_number_of_gateways_follows_from_their_loads(policy, count, loads, expected):
    assert decide(policy, count, history(*loads)) == expected


def test_a_change_needs_a_whole_timeout_after_the_one_before():
    scaler = Autoscaler(POLICY)
    found = [scaler.observe(each) for each in history(*[[0.9] * 3] * 12)]
    assert found == [1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3]


def test_loads_before_a_time_without_loads_do_not_count():
    """The driver stood still, or the machine slept."""
    scaler = Autoscaler(POLICY)
    for at_ms in (0, 1_000, 20_000, 21_000, 22_000, 23_000):
        assert scaler.observe(GatewayLoads(at_ms, {0: 0.9})) == 1
    assert scaler.observe(GatewayLoads(24_000, {0: 0.9})) == 2


def test_the_largest_number_is_not_below_the_smallest():
    with pytest.raises(InvalidConfigurationError, match="--max-gateways is 1, less than"):
        ScalingPolicy(2, 1)


policies = st.builds(
    lambda least, more, load, busy, idle: ScalingPolicy(
        least, least + more, load, busy_timeout_ms=busy, idle_timeout_ms=idle
    ),
    st.integers(1, 3),
    st.integers(0, 3),
    st.floats(0.05, 1.0),
    st.integers(1, 15_000),
    st.integers(1, 15_000),
)
moments = st.lists(
    st.tuples(
        st.integers(1, 15_000),
        st.dictionaries(st.integers(0, 6), st.floats(0, 1.5), max_size=7),
        st.integers(1, 12),
    ),
    max_size=30,
)


@given(policies, moments)
def test_the_number_stays_between_its_limits_and_never_changes_twice_within_a_pause(policy, given):
    scaler = Autoscaler(policy)
    at_ms, changed_ms = 0, -1e9
    before, seen = policy.min_gateways, []
    for step_ms, loads, repeats in given:
        for _ in range(repeats):
            at_ms += step_ms
            seen.append(GatewayLoads(at_ms, loads))
            count = scaler.observe(seen[-1])
            assert policy.min_gateways <= count <= policy.max_gateways
            assert abs(count - before) <= 1
            if count == before:
                continue
            timeout_ms = policy.busy_timeout_ms if count > before else policy.idle_timeout_ms
            assert at_ms - changed_ms > timeout_ms
            within = [each for each in seen if at_ms - each.at_ms <= timeout_ms]
            if count > before:
                assert all(set(range(before)) <= set(each.loads) for each in within)
                assert all(each.total / before >= policy.busy_load for each in within)
            else:
                assert all(each.total < policy.busy_load * (before - 1) for each in within)
            before, changed_ms = count, at_ms


@given(policies, st.floats(0, 4))
def test_the_number_comes_to_rest_under_a_constant_work(policy, cores):
    """The work spreads over the gateways, each of which has one core."""
    scaler = Autoscaler(policy)
    counts = []
    for moment in range(400):
        share = min(1.0, cores / scaler.count)
        loads = dict.fromkeys(range(scaler.count), share)
        counts.append(scaler.observe(GatewayLoads(moment * 1_000, loads)))
    turns = [b - a for a, b in itertools.pairwise(counts) if a != b]
    assert len(set(turns)) <= 1, "it grows and shrinks"
    assert counts[-1] == counts[-100]

"""Every anomaly is found in a history that shows it, and not in a sound one beside it."""

from typing import Any

import pytest

from spark_log.testing.history import Anomaly, check_history
from tests.testing.history.operations import (
    ABORTED,
    UNKNOWN,
    L,
    assign,
    history,
    poll,
    send,
    transaction,
)

A, B, C = (0, "a"), (1, "b"), (2, "c")
WRITTEN = [("p", send(value, offset)) for offset, value in (A, B, C)]
"""Three acknowledged sends."""

READ_ALL = ("last", poll(A, B, C))
T = transaction()
HALVES = ("p", send("a", 0), send("x", 0, to=L), T)
"""A transaction of two partitions."""


def read_all_of_l(*records):
    return ("last", poll(*records, of=L))


# By anomaly: what shows it, and what does not.
CASES: dict[str, Any] = {
    "lost-write": [
        # Another value stands at its offset.
        (
            [WRITTEN[0], ("q", send("b"), {"outcome": UNKNOWN}), ("c", poll((0, "b")))],
            {"lost-write", "inconsistent-offsets"},
        ),
        # Sends of unknown outcome are no transaction: one says nothing of the other.
        (
            [
                ("p", send("a", 0), send("b", 1), {"outcome": UNKNOWN}),
                ("q", send("c", 2)),
                ("c", poll(A)),
                ("d", poll(C)),
            ],
            set(),
        ),
        ([*WRITTEN, ("c", poll(A)), ("d", poll(C))], {"lost-write"}),
        # Another client polled it.
        ([*WRITTEN, ("c", poll(A)), ("d", poll(C)), ("e", poll(B))], set()),
        # It was not acknowledged.
        (
            [WRITTEN[0], ("q", send("b"), {"outcome": UNKNOWN}), ("c", poll(A))],
            set(),
        ),
        # Its transaction's outcome is unknown, but was seen to be a commit.
        (
            [
                ("p", send("a", 0), send("b", 1), transaction(UNKNOWN)),
                ("q", send("c", 2)),
                ("c", poll(A)),
                ("d", poll(C)),
            ],
            {"lost-write"},
        ),
    ],
    "unseen": [
        ([*WRITTEN, ("c", poll(A))], {"unseen"}),
        ([*WRITTEN, READ_ALL], set()),
        ([WRITTEN[0], ("q", send("b"), {"outcome": ABORTED}), ("c", poll(A))], set()),
    ],
    "duplicate": [
        ([*WRITTEN[:2], ("c", poll(A, B, (2, "a")))], {"duplicate"}),
        ([*WRITTEN[:2], ("q", send("a", 2)), ("c", poll(A, B, (2, "a")))], set()),
        # The first of two sends was refused.
        (
            [
                ("p", send("a"), {"outcome": ABORTED}),
                ("p", send("a", 0)),
                ("c", poll(A, (1, "a"))),
            ],
            {"duplicate"},
        ),
        (  # It was aborted with its transaction, and sent once more.
            [
                ("p", send("a", 0), transaction(ABORTED)),
                ("p", send("a", 2), T),
                ("c", poll((2, "a"))),
            ],
            set(),
        ),
        # It was sent once more, with an unknown outcome.
        (
            [*WRITTEN[:2], ("q", send("a"), {"outcome": UNKNOWN}), ("c", poll(A, B, (2, "a")))],
            set(),
        ),
    ],
    "inconsistent-offsets": [
        (
            [*WRITTEN, READ_ALL, ("c", assign(1), poll((1, "a")))],
            {"inconsistent-offsets", "duplicate"},
        ),
        ([*WRITTEN, READ_ALL, ("c", poll(B))], set()),
        (  # The log has other values where two sends were acknowledged.
            [*WRITTEN, ("c", poll((0, "b"), (1, "a"), C))],
            {"inconsistent-offsets", "duplicate"},
        ),
        # One value at one offset of each of two partitions.
        ([*WRITTEN, READ_ALL, ("q", send("z", 0, to=L)), read_all_of_l((0, "z"))], set()),
    ],
    "nonmonotonic-send": [
        ([("p", send("b", 1)), ("p", send("a", 0)), ("c", poll(A, B))], {"nonmonotonic-send"}),
        ([("p", send("b", 1)), ("q", send("a", 0)), ("c", poll(A, B))], set()),
    ],
    "int-nonmonotonic-send": [
        (
            [("p", send("b", 1), send("a", 0), T), ("c", poll(A, B))],
            {"int-nonmonotonic-send"},
        ),
        ([("p", send("a", 0), send("b", 1), T), ("c", poll(A, B))], set()),
    ],
    "poll-skip": [
        # Only a read_uncommitted client polled it, whose transaction may be aborted.
        (
            [
                WRITTEN[0],
                ("q", send("b", 1), transaction(UNKNOWN)),
                WRITTEN[2],
                ("d", poll(A, B, C, committed=False)),
                ("c", poll(A)),
                ("c", poll(C)),
            ],
            set(),
        ),
        ([*WRITTEN, READ_ALL, ("c", poll(A)), ("c", poll(C))], {"poll-skip"}),
        # A seek to the beginning tells where it ought to begin.
        ([*WRITTEN, READ_ALL, ("c", assign(0)), ("c", poll(B))], {"poll-skip"}),
        # Allowed after a rebalance, and if what is between was aborted or may not exist.
        ([*WRITTEN, READ_ALL, ("c", poll(A)), ("c", assign()), ("c", poll(C))], set()),
        ([*WRITTEN, READ_ALL, ("c", assign(2)), ("c", poll(C))], set()),
        (
            [
                WRITTEN[0],
                ("q", send("b", 1), transaction(ABORTED)),
                WRITTEN[2],
                ("c", poll(A)),
                ("c", poll(C)),
            ],
            set(),
        ),
        (
            [
                WRITTEN[0],
                ("q", send("b", 1), transaction(UNKNOWN)),
                WRITTEN[2],
                ("c", poll(A)),
                ("c", poll(C)),
            ],
            set(),
        ),
        # Nothing is known of an offset that nobody polled: a transaction's marker takes one.
        ([WRITTEN[0], WRITTEN[2], ("c", poll(A)), ("c", poll(C))], set()),
        # After an aborted transaction, a client polls once more what it polled in it.
        (
            [
                *WRITTEN,
                READ_ALL,
                ("c", poll(A)),
                ("c", poll(B), transaction(ABORTED)),
                ("c", poll(C)),
            ],
            {"poll-skip"},
        ),
        (
            [
                *WRITTEN,
                READ_ALL,
                ("c", poll(A)),
                ("c", poll(B), transaction(ABORTED)),
                ("c", poll(B, C)),
            ],
            set(),
        ),
        # The offset of one whose outcome is unknown may be either.
        (
            [
                *WRITTEN,
                READ_ALL,
                ("c", poll(A)),
                ("c", poll(B), transaction(UNKNOWN)),
                ("c", poll(C)),
            ],
            set(),
        ),
    ],
    "int-poll-skip": [
        ([*WRITTEN, READ_ALL, ("c", poll(A, C))], {"int-poll-skip"}),
        ([*WRITTEN, READ_ALL, ("c", poll(A), poll(C), T)], {"int-poll-skip"}),
        ([*WRITTEN, READ_ALL, ("c", poll(A), assign(), poll(C), T)], set()),
    ],
    "nonmonotonic-poll": [
        ([*WRITTEN, READ_ALL, ("c", poll(A, B)), ("c", poll(B))], {"nonmonotonic-poll"}),
        ([*WRITTEN, READ_ALL, ("c", poll(A, B)), ("c", assign()), ("c", poll(B))], set()),
        ([*WRITTEN, READ_ALL, ("c", poll(A, B)), ("d", poll(B))], set()),
        ([*WRITTEN, READ_ALL, ("c", poll(A)), ("c", poll(B))], set()),
        (
            [
                *WRITTEN,
                READ_ALL,
                ("c", poll(A)),
                ("c", poll(B), transaction(UNKNOWN)),
                ("c", poll(B)),
            ],
            set(),
        ),
    ],
    "int-nonmonotonic-poll": [
        ([*WRITTEN, READ_ALL, ("c", poll(B, A))], {"int-nonmonotonic-poll"}),
        ([*WRITTEN, READ_ALL, ("c", poll(B), assign(0), poll(A), T)], set()),
    ],
    "garbage-read": [
        ([*WRITTEN, ("c", poll(A, B, C, (3, "d")))], {"garbage-read"}),
        ([*WRITTEN, ("c", poll(A, B, C))], set()),
        # The history has no sends of that partition.
        ([("c", poll(A, B, C))], set()),
    ],
    "G1a": [
        ([("p", send("a", 0), transaction(ABORTED)), ("c", poll(A))], {"G1a"}),
        (
            [("p", send("a", 0), transaction(ABORTED)), ("c", poll(A, committed=False))],
            set(),
        ),
        ([("p", send("a"), {"outcome": ABORTED}), ("c", poll(A, committed=False))], {"G1a"}),
        ([("p", send("a"), {"outcome": UNKNOWN}), ("c", poll(A))], set()),
        (  # It was sent again.
            [("p", send("a"), {"outcome": ABORTED}), ("p", send("a", 0)), ("c", poll(A))],
            set(),
        ),
    ],
    "G1b": [
        # Somebody else may have sent it.
        (
            [
                ("q", send("a"), {"outcome": UNKNOWN}),
                ("p", send("a", 0), transaction(invoked=1, end_invoked=5, completed=6)),
                ("c", poll(A), {"invoked": 2, "completed": 4}),
            ],
            set(),
        ),
        (
            [
                ("p", send("a", 0), transaction(invoked=1, end_invoked=5, completed=6)),
                ("c", poll(A), {"invoked": 2, "completed": 4}),
            ],
            {"G1b"},
        ),
        (
            [
                ("p", send("a", 0), transaction(invoked=1, end_invoked=5, completed=8)),
                ("c", poll(A), {"invoked": 2, "completed": 6}),
            ],
            set(),
        ),
        (
            [
                ("p", send("a", 0), transaction(invoked=1, end_invoked=5, completed=6)),
                ("c", poll(A, committed=False), {"invoked": 2, "completed": 4}),
            ],
            set(),
        ),
        ([("p", send("a", 0), poll(A), T)], {"G1b"}),
        ([("p", send("a", 0)), ("p", poll(A), T)], set()),
    ],
    "torn-transaction": [
        (  # One partition: the part in the middle.
            [("p", send("a", 0), send("b", 1), send("c", 2), T), READ_ALL, ("c", poll(A, C))],
            {"torn-transaction", "int-poll-skip"},
        ),
        (  # Two partitions: a part at the beginning of one.
            [
                HALVES,
                ("q", send("y", 2, to=L)),
                ("last", poll(A), poll((0, "x"), (2, "y"), of=L)),
                ("c", poll(A)),
                ("c", assign(0, of=L)),
                ("c", poll((2, "y"), of=L)),
            ],
            {"torn-transaction", "poll-skip"},
        ),
        # It has not come to the other part yet, or began behind it.
        ([HALVES, ("last", poll(A), poll((0, "x"), of=L)), ("c", poll(A))], set()),
        (
            [
                HALVES,
                ("q", send("y", 2, to=L)),
                ("last", poll(A), poll((0, "x"), (2, "y"), of=L)),
                ("c", poll(A)),
                ("c", poll((2, "y"), of=L)),
            ],
            set(),
        ),
        # These sends are no transaction.
        (
            [("p", send("a", 0), send("b", 1), send("c", 2)), READ_ALL, ("c", poll(A, C))],
            {"int-poll-skip"},
        ),
        # A read_uncommitted client is promised nothing of transactions.
        (
            [
                ("p", send("a", 0), send("b", 1), send("c", 2), T),
                READ_ALL,
                ("c", poll(A, C, committed=False)),
            ],
            {"int-poll-skip"},
        ),
    ],
    "G0": [
        (
            [
                ("p", send("a", 0), send("y", 1, to=L), T),
                ("q", send("b", 1), send("x", 0, to=L), T),
                ("last", poll(A, B)),
                read_all_of_l((0, "x"), (1, "y")),
            ],
            {"G0"},
        ),
        (
            [
                ("p", send("a", 0), send("x", 0, to=L), T),
                ("q", send("b", 1), send("y", 1, to=L), T),
                ("last", poll(A, B)),
                read_all_of_l((0, "x"), (1, "y")),
            ],
            set(),
        ),
    ],
    "G1c": [
        (
            [
                ("p", send("a", 0), poll((0, "x"), of=L), T),
                ("q", poll(A), send("x", 0, to=L), T),
            ],
            {"G1c"},
        ),
        (
            [
                ("p", send("a", 0), T),
                ("q", poll(A), send("x", 0, to=L), T),
                read_all_of_l((0, "x")),
            ],
            set(),
        ),
        (  # The polls of an aborted transaction are no dependency.
            [
                ("p", send("a", 0), poll((0, "x"), of=L), T),
                ("q", poll(A), transaction(ABORTED)),
                ("r", send("x", 0, to=L)),
            ],
            set(),
        ),
    ],
    "G1c-ww": [
        (
            [
                ("p", send("a", 0), poll((0, "x"), of=L), T),
                ("q", send("b", 1), send("x", 0, to=L), T),
                ("last", poll(A, B)),
            ],
            {"G1c-ww"},
        ),
        (
            [
                ("p", send("b", 1), poll((0, "x"), of=L), T),
                ("q", send("a", 0), send("x", 0, to=L), T),
                ("last", poll(A, B)),
            ],
            set(),
        ),
    ],
}


@pytest.mark.parametrize(
    ("steps", "anomalies"),
    [
        pytest.param(steps, anomalies, id=f"{name}-{number}")
        for name, cases in CASES.items()
        for number, (steps, anomalies) in enumerate(cases)
    ],
)
def test_these_anomalies_are_found_and_no_others(steps, anomalies):
    findings = check_history(history(*steps))
    assert {*findings.counts} == anomalies, str(findings)
    assert {each.anomaly for each in findings.findings} == anomalies


def test_each_anomaly_has_a_history_that_shows_it_and_one_that_does_not():
    assert {*CASES} == {*Anomaly}
    for name, cases in CASES.items():
        assert {name in anomalies for _, anomalies in cases} == {True, False}


def test_an_anomaly_that_kafka_allows_is_told_and_breaks_nothing():
    steps, _ = CASES["G0"][0]
    findings = check_history(history(*steps))
    assert findings.findings
    assert findings.anomalies == ()
    assert check_history(history(*steps), allowed=frozenset()).anomalies == findings.findings


def test_a_value_in_two_partitions_is_two_values():
    steps = [("p", send("a", 0)), ("p", send("a", 0, to=L)), ("c", poll(A)), read_all_of_l(A)]
    assert check_history(history(*steps)).counts == {}


def test_a_finding_tells_where_and_by_which_operations_it_shows():
    (finding,) = check_history(history(*WRITTEN, READ_ALL, ("c", poll(A)), ("c", poll(C)))).findings
    assert str(finding) == (
        "poll-skip: flights-0: c polled 2 next after 0, and left out 1 committed records, from 1 "
        "on (c/0, c/1)"
    )
    assert finding.offset == 1


def test_a_cycle_is_explained_by_its_steps():
    steps, _ = CASES["G1c"][0]
    (finding,) = check_history(history(*steps)).findings
    assert finding.explanation == (
        "p/0 polled 'x' (flights-1), which q/0 sent; q/0 polled 'a' (flights-0), which p/0 sent"
    )
    assert finding.operations == ("q/0", "p/0")


def test_an_empty_history_has_no_findings():
    findings = check_history([])
    assert str(findings) == ""
    assert findings.to_arrow().num_rows == 0


def test_examples_are_bounded_and_all_are_counted():
    sends = [("p", send(str(each), each)) for each in range(100)]
    findings = check_history(history(*sends, ("c", poll((99, "99")))), examples=5)
    assert findings.counts == {"lost-write": 99}
    assert [each.offset for each in findings.findings] == [0, 1, 2, 3, 4]
    assert str(findings).splitlines()[-1] == "lost-write: 94 more"


def test_a_long_value_is_shortened_in_an_explanation():
    findings = check_history(history(("p", send("x" * 10_000, 0)), ("c", poll((1, "y")))))
    assert {len(str(each)) < 200 for each in findings.findings} == {True}
    assert "… (10,000 characters)" in str(findings)


def test_findings_are_an_arrow_table():
    steps, _ = CASES["G0"][0]
    findings = check_history(history(*steps, ("c", poll(B, A))))
    assert findings.to_arrow().select(
        ["anomaly", "is_allowed", "topic", "partition", "offset"]
    ).to_pylist() == [
        {
            "anomaly": "int-nonmonotonic-poll",
            "is_allowed": False,
            "topic": "flights",
            "partition": 0,
            "offset": 0,
        },
        {"anomaly": "G0", "is_allowed": True, "topic": None, "partition": None, "offset": None},
    ]


def test_a_transaction_that_was_seen_in_part_is_committed():
    unknown = transaction(UNKNOWN)
    steps = [("p", send("a", 0), send("b", 1), unknown), ("q", send("c", 2)), ("c", poll(A, C))]
    assert {*check_history(history(*steps)).counts} == {
        "lost-write",
        "int-poll-skip",
        "torn-transaction",
    }

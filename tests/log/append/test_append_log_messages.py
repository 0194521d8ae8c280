"""The messages of an append that an operator reads, when a put did not simply succeed."""

import logging

from spark_log.errors import UnknownOutcomeError
from tests.log.support import DIRECTORY, done_but, failing, open_log
from tests.record.samples import numbered

LOST = UnknownOutcomeError("the answer was lost")


def messages(caplog):
    return [each.getMessage() for each in caplog.records if each.name.startswith("spark_log.log")]


def test_a_lost_race_is_told_with_the_offset(store, log, inner, caplog):
    def come_first(path, call):
        open_log(inner).append(numbered(0, 3))
        call()

    store.once("put_if_absent", come_first)
    with caplog.at_level(logging.DEBUG, "spark_log.log.append"):
        log.append(numbered(0, 2))
    told = messages(caplog)
    lost = f"{DIRECTORY}: lost the race for offset 0 to a segment that ends at 3"
    assert lost in told
    assert told[told.index(lost) + 1 :] == [f"{DIRECTORY}: put offsets 3 to 4 in leader epoch 0"]


def test_a_lost_answer_is_told_with_where_the_segment_was_found(store, log, caplog):
    store.once("put_if_absent", done_but(LOST))
    with caplog.at_level(logging.DEBUG, "spark_log.log.append"):
        log.append(numbered(0, 2))
    assert (
        f"{DIRECTORY}: it is not certain whether the put at offset 0 counts (1 such puts of this "
        f"append); found at offset 0"
    ) in messages(caplog)


def test_a_lost_answer_is_told_if_nothing_was_put(store, log, caplog):
    store.once("put_if_absent", failing(LOST))
    with caplog.at_level(logging.DEBUG, "spark_log.log.append"):
        log.append(numbered(0, 2))
    assert (
        f"{DIRECTORY}: it is not certain whether the put at offset 0 counts (1 such puts of this "
        f"append); the segment is not in the log"
    ) in messages(caplog)


def test_an_append_without_trouble_is_one_line(log, caplog):
    log.append(numbered(0, 2))
    with caplog.at_level(logging.DEBUG, "spark_log.log.append"):
        log.append(numbered(0, 2))
    assert messages(caplog) == [f"{DIRECTORY}: put offsets 2 to 3 in leader epoch 0"]

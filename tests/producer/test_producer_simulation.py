"""Producers on a storage that fails and loses answers, by random plans.

With every plan: each acknowledged record is in the log once, at its future's offset; the records of
a partition are in the order in which they were sent; no record that failed for certain is in the
log; and no record is in it twice.
"""

import uuid
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_log import Admin, NewTopic, StorageFullError, StorageTimeoutError, UnknownOutcomeError
from spark_log.storage import open_store
from spark_log.util.clock import ManualClock
from tests.producer.support import ANY_TIME, by_hand, hooked, run, values
from tests.storage.emptying import delete_everything

PARTITIONS = 2

faults = st.sampled_from(["none"] * 5 + ["refused", "full", "lost after", "lost before"])
plans = st.fixed_dictionaries(
    {
        "puts": st.lists(faults, max_size=30),
        "looks": st.lists(st.sampled_from(["none"] * 4 + ["refused"]), max_size=40),
        "steps": st.lists(
            st.tuples(
                st.sampled_from(
                    ["send", "send", "send", "serve", "wait", "blind", "see", "new log handle"]
                ),
                st.integers(0, PARTITIONS - 1),
                st.sampled_from([1, 40, 200, 400, 2_500]),
            ),
            min_size=1,
            max_size=40,
        ),
        "delivery_timeout_ms": st.sampled_from([300, 2_000, 120_000]),
        "batch_size": st.sampled_from([0, 100, 16_384]),
        "linger_ms": st.sampled_from([0, 5, 100]),
    }
)


class Faulty:
    """Answers by a plan, and like the storage after the plan's end."""

    def __init__(self, plan, errors):
        self.plan = list(plan)
        self.errors = errors
        self.is_out = False

    def __call__(self, path, call):
        fault = self.plan.pop(0) if self.plan else "none"
        if self.is_out:
            fault = "refused"
        if fault == "none":
            return call()
        if fault == "lost after":
            with suppress(Exception):
                call()
        raise self.errors[fault]


ERRORS = {
    "refused": StorageTimeoutError("too slow"),
    "full": StorageFullError("no space"),
    "lost after": UnknownOutcomeError("lost"),
    "lost before": UnknownOutcomeError("lost"),
}


@settings(max_examples=150)
@given(plan=plans)
def test_each_acknowledged_record_is_there_once_in_order_and_where_its_future_says(plan):
    name, clock = uuid.uuid4().hex, ManualClock()
    root = f"memory://{name}"
    try:
        Admin(root, clock=clock).create_topics([NewTopic("t", PARTITIONS, topic_configs=ANY_TIME)])
        config = {key: plan[key] for key in ("delivery_timeout_ms", "batch_size", "linger_ms")}
        producer = by_hand(root, clock, **config)
        store = hooked(producer)
        store.on("put_if_absent", Faulty(plan["puts"], ERRORS))
        looks = Faulty(plan["looks"], ERRORS)
        store.on("list", looks)
        sent: dict[int, list[Any]] = {partition: [] for partition in range(PARTITIONS)}
        for number, (step, partition, size) in enumerate(plan["steps"]):
            if step == "send":
                value = b"%d" % number + b"." * size
                future = producer.send("t", value, partition=partition)
                sent[partition].append((value, future))
            elif step == "serve":
                producer.run_once()
            elif step == "wait":
                run(producer, clock, until_ms=size)
            elif step in ("blind", "see"):
                looks.is_out = step == "blind"
            else:
                producer.forget_log("t", partition)
        looks.is_out = False
        run(producer, clock)
        check(values(root, "t"), sent)
        metrics = producer.metrics()["producer-metrics"]
        assert metrics["records-in-flight"] == 0
        assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
    finally:
        delete_everything(open_store(root))


def check(found, sent):
    for partition, records in sent.items():
        log = found[partition]
        assert len(set(log)) == len(log), "nothing is doubled"
        order = [value for value, _ in records]
        assert log == [value for value in order if value in set(log)], "order is kept"
        for value, future in records:
            assert future.done()
            error = future.exception(0)
            if error is None:
                assert log[future.result(0).offset] == value
            elif "not known" not in str(error) and not isinstance(error, UnknownOutcomeError):
                assert value not in log, "what failed for certain is not there"

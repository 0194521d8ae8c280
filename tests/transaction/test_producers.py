"""From a producer id to the transactional id."""

import pytest

from spark_log.errors import CorruptRecordError, InvalidTxnStateError, UnknownOutcomeError
from spark_log.transaction import find_transactional_id, record_producer
from tests.log.support import HookedStore, done_but


def test_a_producer_id_leads_to_its_transactional_id_by_one_request(memory_store):
    store = HookedStore(memory_store)
    record_producer(store, 7, "orders/é")
    assert len(store.calls) == 1
    store.calls.clear()
    assert find_transactional_id(store, 7) == "orders/é"
    assert len(store.calls) == 1
    assert find_transactional_id(store, 8) is None


def test_recording_may_be_repeated_and_not_changed(memory_store):
    store = HookedStore(memory_store)
    store.once("put_if_absent", done_but(UnknownOutcomeError("no answer")))
    with pytest.raises(UnknownOutcomeError):
        record_producer(store, 7, "orders")
    record_producer(store, 7, "orders")
    with pytest.raises(InvalidTxnStateError, match="belongs to transactional id 'orders'"):
        record_producer(store, 7, "other")
    assert find_transactional_id(store, 7) == "orders"


def test_damage_is_told(memory_store):
    memory_store.put("__transaction_state/producers/7", b"{}")
    with pytest.raises(CorruptRecordError, match="transactional producer"):
        find_transactional_id(memory_store, 7)

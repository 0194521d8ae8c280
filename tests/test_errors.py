"""Errors: one base class, fields besides the message, and pickling between processes."""

import inspect
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

import spark_log
from spark_log import errors
from spark_log.errors import (
    CorruptRecordError,
    InvalidConfigurationError,
    LogEndOffsetMismatchError,
    OffsetOutOfRangeError,
    SparkLogError,
    StorageError,
    TransactionError,
    check_unicode,
    nearest,
)

ALL = sorted(
    (
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, SparkLogError)
    ),
    key=lambda kind: kind.__name__,
)


WHAT_TO_DO = ("retriable", "abortable", "fenced", "fatal")


def example(kind):
    """Return an error of this type, with a value other than the default in every field."""
    parameters = inspect.signature(kind).parameters.values()
    fields = {each.name: each for each in parameters if each.kind is each.KEYWORD_ONLY}
    values = {str: "a text", int: 12_345, bool: True, tuple: ("a", "b"), type(None): "near"}
    given = {name: values[type(each.default)] for name, each in fields.items()}
    return kind("what was wrong", **given), given


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
class TestEveryError:
    def test_an_error_pickles_with_its_fields(self, kind):
        error, fields = example(kind)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            again = pickle.loads(pickle.dumps(error, protocol))
            assert type(again) is kind
            assert again.message == str(again) == "what was wrong"
            assert {name: getattr(again, name) for name in fields} == fields
            assert vars(again) == vars(error) == fields

    def test_an_error_needs_only_a_message(self, kind):
        assert kind("what was wrong").message == "what was wrong"

    def test_an_error_tells_what_a_caller_can_do(self, kind):
        told = {name: getattr(kind, name) for name in WHAT_TO_DO}
        assert all(isinstance(value, bool) for value in told.values())
        assert sum(told.values()) <= 1
        assert not told.keys() & vars(kind("x")).keys(), "they are properties of the kind"

    def test_an_error_is_public_and_documented(self, kind):
        assert getattr(spark_log, kind.__name__) is kind
        assert kind.__name__ in spark_log.__all__
        assert kind.__name__.endswith("Error")
        assert inspect.getdoc(kind)

    def test_the_fields_of_an_error_are_documented(self, kind):
        _, fields = example(kind)
        documented = "".join(inspect.getdoc(base) or "" for base in kind.__mro__)
        assert all(f"{name}:" in documented for name in fields)


def test_exactly_these_errors_are_retriable():
    assert {kind.__name__ for kind in ALL if kind.retriable} == {
        "BufferExhaustedError",
        "ConcurrentTransactionsError",
        "EligibleLeadersNotAvailableError",
        "KafkaTimeoutError",
        "LeaderNotAvailableError",
        "StripesChangedError",
        "FencedLeaderEpochError",
        "LeaderEpochError",
        "LogEndOffsetMismatchError",
        "UnknownLeaderEpochError",
        "NotEnoughReplicasAfterAppendError",
        "NotEnoughReplicasError",
        "PreferredLeaderNotAvailableError",
        "StorageFullError",
        "StorageTimeoutError",
        "StorageUnavailableError",
        "UnknownOutcomeError",
        "UnstableOffsetCommitError",
    }


def test_exactly_these_errors_are_abortable_fenced_or_fatal():
    def names(what):
        return {kind.__name__ for kind in ALL if getattr(kind, what)}

    assert names("abortable") == {"TransactionAbortableError"}
    assert names("fenced") == {
        "FencedInstanceIdError",
        "InvalidProducerEpochError",
        "ProducerFencedError",
    }
    assert names("fatal") == {"InvalidTxnStateError", "InvalidTxnTimeoutError"}


def test_transaction_errors_have_one_base_class():
    kinds = {kind.__name__ for kind in ALL if issubclass(kind, TransactionError)}
    assert kinds == {
        "TransactionError",
        "ConcurrentTransactionsError",
        "InvalidTxnStateError",
        "InvalidTxnTimeoutError",
        "ProducerFencedError",
        "TransactionAbortableError",
        "TransactionAbortedError",
        "TransactionalIdNotFoundError",
    }


def test_storage_errors_have_one_base_class():
    kinds = {kind.__name__ for kind in ALL if issubclass(kind, StorageError)}
    assert kinds == {
        "StorageError",
        "NotFoundError",
        "AlreadyExistsError",
        "AuthorizationError",
        "StorageFullError",
        "StorageTimeoutError",
        "StorageUnavailableError",
        "UnknownOutcomeError",
        "UnsupportedStoreError",
        "RootNotFoundError",
        "InvalidRootError",
    }


def test_configuration_errors_have_one_base_class():
    kinds = {kind.__name__ for kind in ALL if issubclass(kind, InvalidConfigurationError)}
    assert kinds == {
        "InvalidConfigurationError",
        "InvalidOptionError",
        "UnsupportedCompressionTypeError",
    }


def fail(kind):
    raise example(kind)[0]


def test_an_error_comes_out_of_another_process_as_it_went_in():
    kinds = (OffsetOutOfRangeError, CorruptRecordError, LogEndOffsetMismatchError)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        for kind in kinds:
            with pytest.raises(kind) as caught:
                pool.submit(fail, kind).result(timeout=120)
            assert vars(caught.value) == example(kind)[1]


class TestNearest:
    KNOWN = ("segment.bytes", "segment.ms", "flush.on.append")

    @pytest.mark.parametrize(
        ("word", "limit", "expected"),
        [
            ("segment.byte", 1, ("segment.bytes",)),
            ("SEGMENT.BYTES", 1, ("segment.bytes",)),
            ("segment", 3, ("segment.ms", "segment.bytes")),
            ("flush", 1, ()),
            ("", 3, ()),
        ],
    )
    def test_nearest_returns_the_most_similar_words(self, word, limit, expected):
        assert nearest(word, self.KNOWN, limit) == expected

    def test_nearest_keeps_the_spelling_of_known_words(self):
        assert nearest("flights", ["Flights"]) == ("Flights",)

    def test_nearest_returns_all_words_that_differ_only_in_case(self):
        assert set(nearest("flight", ["Flights", "flights"], limit=2)) == {"Flights", "flights"}


class TestUnicode:
    @pytest.mark.parametrize("text", ["", "a", "ü", "\U0001f600", "\0", "\ufffe"])
    def test_any_text_in_utf_8_is_accepted(self, text):
        check_unicode("it", text)

    def test_a_lone_surrogate_is_shown_escaped_with_its_position(self):
        with pytest.raises(StorageError) as caught:
            check_unicode("the name", "aü\udcff\x1b", StorageError)
        assert caught.value.message == (
            r"the name is 'a\xfc\udcff\x1b': '\udcff' at 2 is half a character (a lone surrogate), "
            r"and cannot be stored; give Unicode text"
        )

"""Imports pause the garbage collector, and leave it as it was."""

import gc
import weakref

import pytest

from spark_log.util import collector_paused


class _Cycle:
    def __init__(self):
        self.own = self


@pytest.fixture
def enabled():
    gc.enable()
    gc.collect()
    yield
    gc.enable()


def test_no_collection_runs_meanwhile_and_none_visits_the_objects_as_soon_as_it_ends(enabled):
    began = []

    def on_collection(phase, info):
        began.append(info["generation"])

    gc.callbacks.append(on_collection)
    try:
        with collector_paused(makes_old=True):
            began.clear()
            made = [_Cycle() for _ in range(20 * gc.get_threshold()[0])]
            meanwhile = list(began)
        young = len(gc.get_objects(generation=0))
    finally:
        gc.callbacks.remove(on_collection)
    assert not meanwhile
    assert young < len(made)
    assert gc.isenabled()


def test_garbage_of_an_import_is_collected_later(enabled):
    with collector_paused(makes_old=True):
        gone = weakref.ref(_Cycle())
    assert gone() is not None
    gc.collect()
    assert gone() is None


def test_a_collector_that_is_off_stays_off(enabled):
    gc.disable()
    with collector_paused(makes_old=True):
        pass
    assert not gc.isenabled()


def test_what_a_program_has_frozen_stays_frozen(enabled):
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with collector_paused(makes_old=True):
            pass
        assert gc.get_freeze_count() > frozen / 2
    finally:
        gc.unfreeze()


def test_it_ends_with_an_error(enabled):
    with pytest.raises(ImportError), collector_paused(makes_old=True):
        raise ImportError("no module")
    assert gc.isenabled()

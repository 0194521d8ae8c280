"""The rules of a quorum that few seeds of its simulation miss: one situation for each.

A situation returns whether the guarantee held. It does, and does not without the rule.
"""

import shutil
import threading
from types import SimpleNamespace

import pytest

from spark_log.errors import AlreadyExistsError, StorageError, StorageUnavailableError
from spark_log.storage.local import LocalStore
from spark_log.storage.quorum import QuorumStore, add_voter
from spark_log.storage.root_directories import VOTERS
from tests.log.support import HookedStore
from tests.simulation.patches import patched
from tests.simulation.quorum.rules import QUORUM_RULES
from tests.simulation.test_quorum import RARE

A, B = (letter * 32 + b"\n" for letter in (b"a", b"b"))
"""Ids of two proposers that crashed; the bytes that they proposed are ``A`` and ``B``."""

BALLOT_1 = 5
"""Rounds up to the first of ballot 1: ballot 0, three looks for the file, and this one."""


@pytest.fixture
def quorum(tmp_path):
    """Three directories whose calls may be hooked, and a handle that knows the members."""
    stores: dict[str, HookedStore] = {}

    def open_root(root, _):
        return stores.setdefault(root, HookedStore(LocalStore(root)))

    roots = [str(tmp_path / name) for name in "abc"]
    store = QuorumStore(roots, None, open_root)
    store.create_root()
    return SimpleNamespace(
        roots=roots, store=store, stores=stores, other=QuorumStore(roots, None, open_root)
    )


def leave(root, **objects):
    """Leave objects of crashed proposers for the name topic/0, by kind and ballot."""
    for name, content in objects.items():
        kind, ballot = name.split("_")
        LocalStore(root).put_if_absent(f"topic/.quorum/0.{ballot}.{kind}", content)


def decided(store):
    """Propose other bytes, and return those that the name got."""
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("topic/0", b"C")
    return store.open_buffer("topic/0").to_pybytes()


def vote_of_a_later_ballot(quorum):
    """A voted on one root. Then B, which did not reach it, was chosen on the two others."""
    first, *others = quorum.roots
    leave(first, claim_0=A + b"A", vote_0=A + A + b"A")
    leave(others[0], claim_0=A + b"A", vote_0=b"closed", claim_1=B, vote_1=B + B + b"B")
    leave(others[1], claim_0=B + b"B", vote_0=b"closed", claim_1=B, vote_1=B + B + b"B")
    return decided(quorum.store) == b"B"


def copy_that_failed(quorum):
    """One root takes the claim, and not the file. Its objects are all that it knows."""

    def fail(path, call):
        if path == "topic/0":
            raise StorageUnavailableError("no answer", path=path)
        return call()

    quorum.stores[quorum.roots[2]].on("put_if_absent", fail)
    quorum.store.put_if_absent("topic/0", b"first")
    objects = [
        [file.name for file in LocalStore(root).list("topic/.quorum")] for root in quorum.roots
    ]
    return objects == [[], [], ["0.0.claim"]]


def root_wiped_in_a_round(quorum):
    """A was chosen on two roots. One is wiped between showing its id and taking a claim.

    The other root that voted for A has a claim of B, so it does not count for this ballot; but
    it takes the vote.
    """
    first, second, _ = quorum.roots
    leave(first, claim_0=A + b"A", vote_0=A + A + b"A", claim_1=B)
    leave(second, claim_0=A + b"A", vote_0=A + A + b"A")
    wiped, has_shown_id, shown = quorum.stores[second], threading.Event(), []

    def show_id(path, call):
        found = list(call())
        shown.append(path)
        if shown.count(VOTERS) == BALLOT_1:
            has_shown_id.set()
        return iter(found)

    def wipe_before(path, call):
        if path.endswith("/0.1.claim"):
            assert has_shown_id.wait(30)
            shutil.rmtree(second)
        return call()

    quorum.store.members()
    wiped.on("list", show_id)
    wiped.on("put_if_absent", wipe_before)
    try:
        quorum.store.put_if_absent("topic/0", b"C")
    except AlreadyExistsError:
        return quorum.store.open_buffer("topic/0").to_pybytes() == b"A"
    return False


def member_added_behind_a_client(quorum):
    """Two of four members answer: no majority, whatever a client with the older list believes."""
    quorum.other.members()
    added = f"{quorum.roots[0]}-4"
    add_voter(quorum.store, added)
    shutil.rmtree(quorum.roots[2])
    shutil.rmtree(added)
    try:
        quorum.other.put_if_absent("topic/0", b"old")
    except StorageError:
        return True
    return False


SITUATIONS = {
    "the highest vote is adopted": vote_of_a_later_ballot,
    "objects are deleted only beside the file": copy_that_failed,
    "members that do not agree are asked again": root_wiped_in_a_round,
    "a list is on a majority of the members before": member_added_behind_a_client,
}


def test_each_rare_rule_has_a_situation():
    assert set(SITUATIONS) == RARE


@pytest.mark.parametrize("rule", SITUATIONS)
def test_the_guarantee_holds_in_the_situation_for(rule, quorum):
    assert SITUATIONS[rule](quorum)


@pytest.mark.parametrize("rule", SITUATIONS)
def test_the_guarantee_does_not_hold_without(rule, quorum):
    with patched(*QUORUM_RULES[rule].patches):
        assert not SITUATIONS[rule](quorum)

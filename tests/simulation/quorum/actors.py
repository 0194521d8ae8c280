"""Processes of a simulated quorum: they put files, read them, and replace roots."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from spark_log.errors import (
    AlreadyExistsError,
    ConcurrentModificationError,
    InvalidConfigurationError,
    InvalidRootError,
    NotFoundError,
    SparkLogError,
)
from spark_log.metadata.metadata_log import MetadataLog
from spark_log.metadata.producer_ids import ProducerIds
from spark_log.storage.quorum import (
    MappedQuorumStore,
    Membership,
    QuorumStore,
    add_voter,
    remove_voter,
)
from spark_log.util.suppressed import SuppressedErrors
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.quorum.world import QuorumWorld


class Proposer:
    """A process that appends: it puts a file under the first name that is free."""

    def __init__(self, world: QuorumWorld, mark: str) -> None:
        self._world = world
        self._mark = mark
        self._numbers = count()

    def run(self) -> None:
        """Work until the faults end; called again after each crash."""
        world, random = self._world, self._world.scheduler.random
        store = world.open_store()
        next_names = [0] * world.profile.names
        while not world.is_ending:
            world.rest(world.profile.think_ms)
            log = random.randrange(world.profile.names)
            content = f"{self._mark}:{next(self._numbers)}".encode()
            try:
                next_names[log] = self._append(store, log, next_names[log], content)
            except SparkLogError as error:
                world.scheduler.note(f"{type(error).__name__}: {error}")

    def _append(self, store: QuorumStore, log: int, first: int, content: bytes) -> int:
        world = self._world
        for number in count(first):
            path = f"log-{log}/{number:04}"
            try:
                store.put_if_absent(path, content)
            except AlreadyExistsError:
                world.scheduler.note(f"{path} is taken")
                world.truth.check_refused(path, content)
            else:
                world.scheduler.note(f"{path} is put: {content!r}")
                world.truth.check_put(path, content)
                return number + 1
        raise AssertionError


class NameReader:
    """A process that lists names, and looks for the next."""

    def __init__(self, world: QuorumWorld) -> None:
        self._world = world

    def run(self) -> None:
        """Work until the faults end; called again after each crash."""
        world, random = self._world, self._world.scheduler.random
        store = world.open_store()
        while not world.is_ending:
            world.rest(world.profile.think_ms * 2)
            directory = f"log-{random.randrange(world.profile.names)}"
            try:
                if random.random() < 0.5:
                    self.list(store, directory)
                else:
                    self._look(store, f"{directory}/{random.randrange(8):04}")
            except SparkLogError as error:
                world.scheduler.note(f"{type(error).__name__}: {error}")

    def list(self, store: QuorumStore, directory: str) -> None:
        """List a directory, and read what it shows."""
        truth, expected = self._world.truth, set(self._world.truth.acknowledged)
        shown = [file.path for file in store.list(directory)]
        self._world.scheduler.note(f"{directory} has {len(shown)} files")
        truth.check_listed(directory, set(shown), expected)
        for path in shown:
            truth.acknowledged.add(path)
        for path in shown[-2:]:
            truth.check_shown(path, store.open_buffer(path).to_pybytes())

    def _look(self, store: QuorumStore, path: str) -> None:
        truth, expected = self._world.truth, set(self._world.truth.acknowledged)
        try:
            content = store.open_buffer(path).to_pybytes()
        except NotFoundError:
            truth.check_missing(path, expected)
        else:
            truth.check_shown(path, content)


class Allocator:
    """A process that takes producer ids, by conditional appends to the metadata log."""

    def __init__(self, world: QuorumWorld) -> None:
        self._world = world

    def run(self) -> None:
        """Work until the faults end; called again after each crash."""
        world = self._world
        while not world.is_ending:
            world.rest(world.profile.think_ms * 5)
            # A log whose store is not mapped is opened by several threads.
            log = MetadataLog(world.open_store(MappedQuorumStore), world.clock, SuppressedErrors())
            try:
                world.truth.check_number(ProducerIds(log).next_id())
                world.scheduler.note("has a producer id")
            except SparkLogError as error:
                world.scheduler.note(f"{type(error).__name__}: {error}")


class QuorumOperator:
    """Lets roots fail for a while, and return with old files or none; replaces those."""

    def __init__(self, world: QuorumWorld) -> None:
        self._world = world
        self._next_root = world.profile.roots

    def run(self) -> None:
        """Work until the faults end."""
        world, random = self._world, self._world.scheduler.random
        while not world.is_ending:
            world.rest(DELETE_DELAY_MS * (0.02 if world.profile.operator == "move" else 0.3))
            try:
                voters = world.open_store().members().membership.voters
                acts = {"wipe": (self._wipe,), "move": (self._replace,)}
                every = (self._fail, self._wipe, self._lose, self._move)
                act = random.choice(acts.get(world.profile.operator, every))
                act(random.choice(voters).root)
            except SparkLogError as error:  # before anything is done
                world.scheduler.note(f"{type(error).__name__}: {error}")

    def _fail(self, root: str) -> None:
        """Let a root be down for a while; it lacks the puts of that time."""
        world = self._world
        world.scheduler.note(f"{root} is down")
        world.roots[root].is_down = True
        world.rest(DELETE_DELAY_MS * 0.3)
        world.roots[root].is_down = False
        world.scheduler.note(f"{root} is up")

    def _make_another_stale(self, root: str) -> None:
        """Let another root be down first, so that the puts of that time are on one root fewer."""
        voters = self._world.open_store().members().membership.voters
        others = [voter.root for voter in voters if voter.root != root]
        if self._world.scheduler.random.random() < 0.7:
            self._fail(self._world.scheduler.random.choice(others))

    def _wipe(self, root: str) -> None:
        """Let a root lose its files while all others answer."""
        world = self._world
        self._make_another_stale(root)
        world.is_calm = True
        faults = world.roots[root].faults
        world.set_faults(faults.without_faults())
        while any(each.has_failed for each in world.rounds):
            world.scheduler.pass_time(1.0)
        if world.is_ending:
            return
        world.scheduler.note(f"{root} is wiped")
        world.roots[root].files.wipe()
        under_way = list(world.rounds)
        while any(each in world.rounds for each in under_way):
            world.scheduler.pass_time(1.0)
        world.is_calm = False
        if not world.is_ending:
            world.set_faults(world.profile.faults)
        world.rest(DELETE_DELAY_MS * 0.1)
        self._replace(root)

    def _lose(self, root: str) -> None:
        """Let a root be down until its calls have ended; it may return empty. Replace it."""
        world = self._world
        self._make_another_stale(root)
        world.scheduler.note(f"{root} is down for good")
        world.roots[root].is_down = True
        under_way = list(world.rounds)
        while any(each in world.rounds for each in under_way):
            world.scheduler.pass_time(1.0)
        world.rest(DELETE_DELAY_MS * 0.1)
        if world.scheduler.random.random() < 0.5:
            world.roots[root].files.wipe()
            world.roots[root].is_down = False
        self._replace(root)

    def _move(self, root: str) -> None:
        """Replace a root that answers."""
        self._replace(root)
        self._world.rest(DELETE_DELAY_MS)

    def _replace(self, root: str) -> None:
        changes = [self._remove, self._add]
        if self._world.scheduler.random.random() < 0.5:
            changes.reverse()
        for change in changes:
            change(root)

    def _remove(self, root: str) -> None:
        self._until_done(lambda store: remove_voter(store, root, clock=self._world.clock))

    def _add(self, _: str) -> None:
        new = self._world.root(self._next_root)
        self._next_root += 1
        added = self._until_done(lambda store: add_voter(store, new, clock=self._world.clock))
        if not added and not self._world.is_ending:
            # The change was begun: the new root is or is not a member.
            self._remove(new)
            self._add(_)

    def _until_done(self, change: Callable[[QuorumStore], Membership]) -> bool:
        """Change the members; return False if they are not as they were before."""
        world = self._world
        while not world.is_ending:
            before = None
            try:
                store = world.open_store()
                before = store.members().membership.version
                changed = change(store)
            except ConcurrentModificationError as error:
                world.scheduler.note(f"{error}")
            except InvalidConfigurationError:
                return False
            except InvalidRootError:
                return False
            except SparkLogError as error:
                world.scheduler.note(f"cannot change {before}: {type(error).__name__}: {error}")
                world.rest(DELETE_DELAY_MS * 0.05)
            else:
                world.scheduler.note(f"members {changed.version}: {changed.url}")
                return True
        return False

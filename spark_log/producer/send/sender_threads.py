"""The threads of a producer, which run its `Sender`."""

from __future__ import annotations

import logging
import threading
from typing import Final

from spark_log.producer.batch import NEVER_MS, Accumulator, PartitionQueue
from spark_log.producer.send.batch_completer import BatchCompleter
from spark_log.producer.send.sender import Sender
from spark_log.util import Clock

_log = logging.getLogger(__name__)

_EXPIRY_ONLY_MS: Final = -1.0
"""The wakeup time of a leader that only watches expiry; no partition is ready before it."""


_PATIENCE_MS: Final = 100.0
"""Time after which another thread takes over from one whose short append is not over."""


class SenderThreads:
    """Threads that run a `Sender`: one of them, the leader, waits for ready partitions.

    The leader appends to the ready partition itself, after another thread has become the leader, so
    that a record waits for only one thread switch before its append. One thread is always the
    leader, so that batches expire even while every append hangs.

    An append that does not wait for the storage is over before another thread is awake, and both
    would only take the interpreter's lock from each other. For such an append no other thread is
    woken: the leader appends to one ready partition after the other. An idle thread looks after it,
    and becomes the leader if the append takes longer than `_PATIENCE_MS`.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        sender: Sender,
        completer: BatchCompleter,
        clock: Clock,
        *,
        name: str,
        max_appends: int,
    ) -> None:
        """Create the threads of a producer; none is started yet."""
        self._accumulator = accumulator
        self._sender = sender
        self._completer = completer
        self._clock = clock
        self._name = name
        self._max_threads = max_appends + 1
        self._idle = threading.Condition(accumulator.lock)
        self._idle_count = 0
        self._thread_count = 1  # the first thread is started only once
        self._has_leader = False
        self._is_stopped = False
        self._appending: threading.Thread | None = None
        """The thread that appends without another leader."""
        self._appending_since_ms = 0.0
        self._is_watched = False
        self._threads: list[threading.Thread] = []

    @property
    def is_started(self) -> bool:
        """Whether a thread was started."""
        return bool(self._threads)

    @property
    def includes_current_thread(self) -> bool:
        """Whether the caller runs in one of these threads, as callbacks and interceptors do."""
        return threading.current_thread() in self._threads

    def start(self) -> None:
        """Start one more thread.

        Raises:
            RuntimeError: the system allows no more threads, or the interpreter is shutting down.
        """
        thread = threading.Thread(
            target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True
        )
        self._threads.append(thread)
        try:
            thread.start()
        except RuntimeError:
            self._threads.remove(thread)
            raise

    def stop(self) -> None:
        """End the threads after their current appends."""
        with self._accumulator.lock:
            self._is_stopped = True
            self._accumulator.ready.work.notify_all()
            self._idle.notify_all()

    def join(self, timeout_s: float) -> None:
        """Wait for the threads to end, up to a timeout for all of them."""
        until_ms = self._clock.monotonic_ms() + timeout_s * 1000
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join(max(0.0, (until_ms - self._clock.monotonic_ms()) / 1000))

    def _run(self) -> None:
        while (queue := self._next()) is not None:
            self._sender.send_batches(queue)

    def _next(self) -> PartitionQueue | None:
        """Wait for a ready partition, and return it; None after `stop`."""
        ready, incomplete = self._accumulator.ready, self._accumulator.incomplete
        while True:
            has_another = True
            with self._accumulator.lock:
                if self._is_stopped:
                    return None
                now_ms = self._clock.monotonic_ms()
                if self._appending is not None and self._watch(now_ms):
                    continue
                if self._has_leader:
                    queue = ready.take(now_ms)
                    if queue is None:
                        self._follow()
                        continue
                    return queue
                has_expired = incomplete.next_expiry_ms() <= now_ms
                queue = ready.take(now_ms) if self._may_take and not has_expired else None
                if queue is not None:
                    is_quick = queue.log is not None and queue.log.is_quick
                    if self._idle_count and is_quick:
                        self._lead_on(now_ms)
                    else:
                        has_another = self._wake_another()
                elif not has_expired:
                    self._lead(now_ms)
                    continue
            if queue is None:
                self._completer.fail_expired()
                continue
            if not has_another:
                self._start_another()
            return queue

    def _follow(self) -> None:
        """Wait until the leader takes a partition or the threads are stopped; the lock is held."""
        ready = self._accumulator.ready
        if (
            ready.next_ready_ms() < ready.leader_wakes_ms
            or ready.leader_wakes_ms == _EXPIRY_ONLY_MS
        ):
            ready.work.notify()
        self._idle_count += 1
        self._idle.wait()
        self._idle_count -= 1
        self._is_watched = False

    def _lead_on(self, now_ms: float) -> None:
        """Begin a short append as the leader; the lock is held, and a thread is idle."""
        self._appending = threading.current_thread()
        self._appending_since_ms = now_ms
        if not self._is_watched:
            self._is_watched = True
            self._idle.notify()

    def _watch(self, now_ms: float) -> bool:
        """Wait while the leader makes a short append; the lock is held.

        Returns:
            False if this thread may be the leader: its own append has ended, or that of the leader
            takes too long.
        """
        left_ms = self._appending_since_ms + _PATIENCE_MS - now_ms
        if self._appending is threading.current_thread() or left_ms <= 0:
            self._appending = None
            return False
        self._is_watched = True
        self._idle_count += 1
        self._idle.wait(left_ms / 1000)
        self._idle_count -= 1
        self._is_watched = False
        return True

    def _wake_another(self) -> bool:
        """Let an idle thread become the leader; return False if a thread has to be started."""
        if self._idle_count:
            self._idle.notify()
            return True
        self._thread_count += 1
        return False

    @property
    def _may_take(self) -> bool:
        """Whether another thread can become the leader in place of this one."""
        return self._idle_count > 0 or self._thread_count < self._max_threads

    def _lead(self, now_ms: float) -> None:
        """Wait until a partition is ready or a batch expires; the lock is held."""
        ready = self._accumulator.ready
        wake_ms = self._accumulator.incomplete.next_expiry_ms()
        if self._may_take:
            wake_ms = min(wake_ms, ready.next_ready_ms())
        ready.leader_wakes_ms = wake_ms if self._may_take else _EXPIRY_ONLY_MS
        self._has_leader = True
        try:
            ready.work.wait(None if wake_ms == NEVER_MS else (wake_ms - now_ms) / 1000)
        finally:
            self._has_leader = False
            ready.leader_wakes_ms = -NEVER_MS

    def _start_another(self) -> None:
        try:
            self.start()
        except RuntimeError as error:  # this thread becomes the leader again after its append
            _log.info("no further thread: %s", error)
            with self._accumulator.lock:
                self._thread_count -= 1

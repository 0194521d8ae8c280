"""Processes that end, fork or are killed while they send."""

import os
import signal
import subprocess
import sys

import pytest

from tests.cli.support import environment
from tests.producer.support import committed, new_root, values

_HEAD = """
import os, signal, sys, time
from spark_log import Producer
root = sys.argv[1]
def say(text):
    os.write(1, f"{text}\\n".encode())
"""


@pytest.fixture
def root(tmp_path):
    return new_root(tmp_path, ("flights", 2), "weather")


def process(root, script):
    return subprocess.Popen(
        [sys.executable, "-c", _HEAD + script, str(root)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(running):
    out, err = running.communicate(timeout=60)
    return running.returncode, out, err


LINGERS = "producer = Producer(root, linger_ms=60_000)\n"


class TestRegularEnd:
    def test_what_was_not_flushed_is_sent(self, root):
        script = LINGERS + "for number in range(100): producer.send('weather', b'%d' % number)\n"
        status, _, err = ended(process(root, script))
        assert (status, err) == (0, "")
        assert values(root, "weather") == {0: [b"%d" % number for number in range(100)]}

    def test_so_it_is_when_the_program_fails_and_nobody_holds_the_producer(self, root):
        script = """
def send():
    Producer(root, linger_ms=60_000).send('weather', b'x')
send()
import gc; gc.collect()
raise SystemExit(7)
"""
        assert ended(process(root, script))[0] == 7
        assert values(root, "weather") == {0: [b"x"]}

    def test_records_that_are_lost_are_counted_in_a_warning(self, root):
        script = """
producer = Producer(root, linger_ms=50, delivery_timeout_ms=1_500)
producer.partitions_for('weather')
os.rename(root, root + '.away')
for _ in range(7): producer.send('weather', b'x')
"""
        status, _, err = ended(process(root, script))
        assert status == 0
        assert "7 records were lost at the end of the process" in err
        assert "Traceback" not in err

    @pytest.mark.skipif(
        (3, 12) <= sys.version_info < (3, 12, 3),
        reason="Python before 3.12.3 starts none after the main thread (python/cpython#113964)",
    )
    def test_a_thread_that_outlives_the_main_thread_ends_its_transactions(self, root):
        """Python starts no thread of a pool any more by then: the markers need none."""
        script = """
import threading
producer = Producer(root, transactional_id="t")
producer.init_transactions()
def work():
    threading.main_thread().join()
    for commits in (True, False, True):
        producer.begin_transaction()
        for partition in (0, 1): producer.send('flights', b'%d' % commits, partition=partition)
        producer.flush()
        (producer.commit_transaction if commits else producer.abort_transaction)()
threading.Thread(target=work).start()
"""
        assert ended(process(root, script)) == (0, "", "")
        assert committed(root, "flights") == {0: [b"1"] * 2, 1: [b"1"] * 2}

    def test_it_can_be_turned_off(self, root):
        script = "producer = Producer(root, linger_ms=60_000, flush_on_exit=False)\n"
        script += "producer.send('weather', b'x')\n"
        assert ended(process(root, script))[0] == 0
        assert values(root, "weather") == {0: []}


class TestSigterm:
    def test_flushes_and_ends_the_process_by_the_signal(self, root):
        script = LINGERS + "producer.send('weather', b'x')\nsay('sent')\ntime.sleep(60)\n"
        running = process(root, script)
        assert running.stdout.readline() == "sent\n"
        running.terminate()
        status, _, err = ended(running)
        assert (status, err) == (-signal.SIGTERM, "")
        assert values(root, "weather") == {0: [b"x"]}

    def test_in_the_midst_of_sending_loses_nothing_that_was_sent(self, root):
        script = """
producer = Producer(root, linger_ms=5)
number = 0
while True:
    try:
        producer.send('weather', b'%d' % number)
    except Exception:
        time.sleep(60)
    number += 1
    if number == 5_000: say('sending')
"""
        running = process(root, script)
        assert running.stdout.readline() == "sending\n"
        running.terminate()
        assert ended(running)[0] == -signal.SIGTERM
        found = values(root, "weather")[0]
        assert len(found) >= 5_000
        assert found == [b"%d" % number for number in range(len(found))]

    def test_a_handler_of_the_programs_is_left_alone(self, root):
        script = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
producer = Producer(root, linger_ms=60_000)
producer.send('weather', b'x')
say('sent')
time.sleep(60)
"""
        running = process(root, script)
        assert running.stdout.readline() == "sent\n"
        running.terminate()
        assert ended(running)[0] == 3
        assert values(root, "weather") == {0: [b"x"]}, "sys.exit runs what a regular end runs"

    def test_after_close_it_ends_the_process_as_ever(self, root):
        script = LINGERS + "producer.close()\nsay('closed')\ntime.sleep(60)\n"
        running = process(root, script)
        assert running.stdout.readline() == "closed\n"
        running.terminate()
        assert ended(running)[0] == -signal.SIGTERM


class TestSigkill:
    def test_what_was_acknowledged_is_there_once_and_in_order(self, root):
        script = """
producer = Producer(root, linger_ms=1)
class Told:
    def __init__(self, value): self.value = value
    def __call__(self, metadata): say(f"{metadata.partition} {metadata.offset} {self.value}")
number = 0
while True:
    sent = producer.send('flights', b'%d' % number, partition=number % 2)
    sent.add_callback(Told(number))
    number += 1
    if number % 50 == 0: time.sleep(0.001)
"""
        running = process(root, script)
        told = [running.stdout.readline() for _ in range(2_000)]
        running.kill()
        told += [line for line in running.stdout if line.endswith("\n")]
        running.stderr.close()
        running.wait(60)
        found = values(root, "flights")
        for line in told:
            partition, offset, value = map(int, line.split())
            assert found[partition][offset] == b"%d" % value
        for partition, each in found.items():
            numbers = [int(value) for value in each]
            assert numbers == list(range(partition, 2 * len(numbers), 2))


class TestFork:
    def test_child_is_told_to_make_its_own_and_the_parent_goes_on(self, root):
        script = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of a fork with threads
producer = Producer(root, linger_ms=60_000)
waiting = producer.send('weather', b'before')
child = os.fork()
if child == 0:
    for call in (lambda: producer.send('weather', b'x'), producer.flush, waiting.result):
        try:
            call()
        except Exception as error:
            say(f"{type(error).__name__}: {'make a producer in the child' in str(error)}")
    producer.close()
    with Producer(root) as own:
        own.send('weather', b'child')
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
producer.send('weather', b'after')
"""
        status, out, err = ended(process(root, script))
        assert (status, err) == (0, "")
        assert out.splitlines() == ["IllegalStateError: True"] * 3
        assert values(root, "weather") == {0: [b"child", b"before", b"after"]}


class TestInterrupt:
    def test_ctrl_c_in_the_midst_of_sending_leaves_whole_records(self, root):
        script = """
with Producer(root, linger_ms=1) as producer:
    number = 0
    try:
        while True:
            producer.send('weather', b'%d' % number, b'k%d' % number)
            number += 1
            if number == 2_000: say('sending')
    except KeyboardInterrupt:
        pass
"""
        running = process(root, script)
        assert running.stdout.readline() == "sending\n"
        os.kill(running.pid, signal.SIGINT)
        assert ended(running)[0] == 0
        found = values(root, "weather")[0]
        assert len(found) >= 2_000
        assert found == [b"%d" % number for number in range(len(found))]

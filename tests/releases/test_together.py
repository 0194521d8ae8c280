"""Processes of an old release and of the present one share a root, and are killed."""

import json
import random
import threading

import pytest

from tests.releases.old_client import TOPIC
from tests.waiting import wait_until

_KILLS = 4


class Told:
    """A running client and what it told until now."""

    def __init__(self, process):
        self.process = process
        self.facts = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            if line.endswith("\n"):  # a killed process may have written a part of a line
                self.facts.append(json.loads(line))

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return self


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("0.1", marks=pytest.mark.long),
        "0.2",
        pytest.param("0.3", marks=pytest.mark.long),
    ],
)
def test_two_releases_share_a_root_while_processes_are_killed(releases, tmp_path, name):
    root, chance = tmp_path / "log", random.Random(name)
    pair = releases[name], releases["present"]
    pair[0].client("create", root)
    ended = []
    producers = [Told(each.start("produce", root, name=f"p{n}")) for n, each in enumerate(pair)]
    consumers = [Told(each.start("consume", root, group="both")) for each in pair]
    try:
        for number in range(_KILLS):
            wait_for_more(producers)
            killed = chance.randrange(2)
            ended.append(producers[killed].kill())
            producers[killed] = Told(pair[killed].start("produce", root, name=f"q{number}"))
            wait_for_more(consumers)
            killed = chance.randrange(2)
            ended.append(consumers[killed].kill())
            consumers[killed] = Told(pair[killed].start("consume", root, group="both"))
        for each in producers:
            each.kill()
        sent = [fact for each in [*ended, *producers] for fact in each.facts if "offset" in fact]
        assert len(sent) > 2 * _KILLS

        def unread():
            facts = [fact for each in [*ended, *consumers] for fact in each.facts]
            read = {tuple(each) for fact in facts for each in fact.get("read", [])}
            return {(each["partition"], each["offset"], each["value"]) for each in sent} - read

        wait_until(lambda: not unread(), "the group does not read all records")
    finally:
        for each in [*producers, *consumers]:
            each.kill()

    logs = [each.client("read", root, topic=TOPIC) for each in pair]
    assert logs[0] == logs[1]
    values = [fact["value"] for fact in logs[0]]
    assert len(values) == len(set(values))
    assert all(fact in logs[0] for fact in sent)
    verified = pair[1].command("verify", "--root", root)
    assert verified.returncode == 0, verified.stdout


def wait_for_more(clients):
    """Wait until one of the clients has told more; all of them have to run."""
    before = sum(len(each.facts) for each in clients)

    def has_more():
        for each in clients:
            assert each.process.poll() is None, each.process.stderr.read()
        return sum(len(each.facts) for each in clients) > before

    wait_until(has_more, "no client goes on")

"""A stripe on a quorum: writers are killed and stopped, roots fail, are lost and are replaced."""

import logging
import os
import random
from typing import Any

import pytest

from spark_log.storage import open_store
from spark_log.storage.quorum import add_voter, remove_voter
from tests.faults.campaign import Campaign
from tests.faults.log_checks import check_results

DURATION_S = float(os.environ.get("FAULTS_SECONDS", "5"))
"""Duration of the faults. A long run, which logs its events and results:

FAULTS_SECONDS=300 pytest tests/faults/test_stripes_on_a_quorum.py --log-cli-level=INFO
"""

SEED = int(os.environ.get("FAULTS_SEED", random.randrange(2**32)))

_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.INFO)


class Roots:
    """The three roots of a quorum."""

    options = None

    def open(self, urls):
        """Return the quorum, as a process opens it that knows these roots."""
        return open_store(",".join(urls), self.options)


class LocalRoots(Roots):
    """Three directories, each of which is taken away like a disk, and perhaps never comes back."""

    def __init__(self, folder):
        self._folder, self._count = folder, 3
        self.urls = [str(folder / f"root{number}") for number in range(3)]

    def new(self):
        """Return the URL of an empty root."""
        self._count += 1
        return str(self._folder / f"root{self._count}")

    def take_away(self, url):
        """Take a root away; return what brings it back."""
        self._count += 1
        aside = f"{self._folder}/aside{self._count}"
        os.rename(url, aside)

        def bring_back():
            if os.path.exists(url):  # a put in that moment made it again
                self.take_away(url)
            os.rename(aside, url)

        return bring_back


class BucketRoots(Roots):
    """Three buckets, each of which is emptied."""

    def __init__(self, server):
        self._server = server
        self.urls = [f"{server.new_bucket()}/root" for _ in range(3)]
        self.options = server.storage_options

    def new(self):
        """Return the URL of an empty root."""
        return f"{self._server.new_bucket()}/root"

    def take_away(self, url):
        """Delete all files of a root; they do not come back."""
        open_store(url, self.options).delete_directory("")


class RootCampaign(Campaign):
    """The faults of `Campaign`, and those of the roots, one of which is away at a time.

    Attributes:
        roots: the roots of the quorum.
    """

    roots: Any
    is_away = False

    def _strike(self):
        if self.is_away or self._chance.random() > 0.2:
            return super()._strike()
        self.is_away = True
        # Whoever was stopped for long finds the present members by the first root.
        url = self._chance.choice(self.roots.urls[1:])
        bring_back = self.roots.take_away(url)
        if bring_back is None or self._chance.random() < 0.5:
            self.done["root lost"] += 1
            return _Hit(lambda: self._replace(url))
        self.done["root taken away"] += 1
        return _Hit(lambda: self._bring_back(bring_back))

    def _bring_back(self, bring_back):
        bring_back()
        self.is_away = False

    def _replace(self, url):
        new, urls = self.roots.new(), self.roots.urls
        store = self.roots.open([each for each in urls if each != url])
        remove_voter(store, url)
        add_voter(store, new)
        urls[urls.index(url)] = new
        self.store = self.roots.open(urls)  # what new processes know
        self.is_away = False


class _Hit:
    def __init__(self, resume):
        self.resume = resume


@pytest.fixture(params=["local", pytest.param("S3 server", marks=pytest.mark.long)])
def roots(request, tmp_path):
    if request.param == "local":
        return LocalRoots(tmp_path)
    return BucketRoots(request.getfixturevalue("s3_server"))


def test_every_acknowledged_record_is_there_although_roots_are_lost(roots, tmp_path):
    store = roots.open(roots.urls)
    store.create_root()
    notes = tmp_path / "notes"
    notes.mkdir()
    _LOG.info("FAULTS_SEED=%d", SEED)  # pytest shows it if the test fails
    campaign = RootCampaign(store, notes, SEED, idempotent=True, delete_delay_ms=1500, stripes=1)
    campaign.roots = roots
    campaign.run(DURATION_S)
    _LOG.info("done: %s", dict(campaign.done))
    found = check_results(roots.open(roots.urls), notes, idempotent=True, stripes=1)
    _LOG.info("found: %s", found)
    assert campaign.done["root lost"] + campaign.done["root taken away"]
    assert found["records"]

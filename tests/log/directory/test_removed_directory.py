"""A partition's directory that is missing was removed only if it is missing after its marker."""

import pytest

from spark_log.config import TopicConfig
from spark_log.errors import LogTruncatedError
from spark_log.log import LocalLog
from spark_log.log.files import ExistenceMarker
from spark_log.storage.local import LocalStore
from spark_log.util import SYSTEM_CLOCK
from tests.record.samples import numbered

DIRECTORY = "t.id/t-0"


@pytest.fixture
def store(tmp_path):
    return LocalStore(str(tmp_path))


def open_log(store):
    return LocalLog(
        store,
        DIRECTORY,
        config=TopicConfig(),
        topic_id="id",
        partition=0,
        clock=SYSTEM_CLOCK,
        has_existence_marker=True,
    )


def test_another_process_that_appends_first_meanwhile_is_no_loss(store, monkeypatch):
    """It makes the directory after this process has looked for it, and then the marker."""
    exists = ExistenceMarker.exists

    def look(marker, in_store):
        monkeypatch.undo()
        open_log(store).append(numbered(0, 1))
        return exists(marker, in_store)

    monkeypatch.setattr(ExistenceMarker, "exists", look)
    assert open_log(store).append(numbered(0, 1)).base_offset == 1


def test_a_directory_that_is_still_missing_was_removed(store):
    open_log(store).append(numbered(0, 1))
    store.delete_directory(DIRECTORY)
    with pytest.raises(LogTruncatedError):
        open_log(store).append(numbered(0, 1))

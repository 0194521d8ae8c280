"""Levels of features in the metadata image."""

from dataclasses import replace

import pytest

from spark_log.errors import InvalidUpdateVersionError, UnsupportedVersionError
from spark_log.metadata.checkpoint import MetadataCheckpoint
from spark_log.metadata.features import FEATURES, TABLE_VERSION, feature_updates, with_features
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.records import ConfigRecord, TopicRecord

USE = ConfigRecord(resource_type="topic", resource_name="a", name="table.format", value="delta")


def test_the_first_use_finalizes_the_feature_before_it():
    image = MetadataImage()
    first, second = with_features(image.features, [USE])
    assert (first, second) == (TABLE_VERSION.record(1), USE)
    image.replay(first)
    assert with_features(image.features, [USE]) == [USE]


@pytest.mark.parametrize("value", [None, "none"])
@pytest.mark.parametrize("resource_type", ["topic", "broker"])
def test_a_setting_that_is_off_is_no_use(value, resource_type):
    off = USE.model_copy(update={"value": value, "resource_type": resource_type})
    assert with_features({}, [off]) == [off]
    assert with_features({}, []) == []


def test_a_copy_and_a_checkpoint_keep_the_levels():
    image = MetadataImage()
    image.replay(TABLE_VERSION.record(1))
    image.replay(TopicRecord(name="a", topic_id="id"))
    checkpoint = MetadataCheckpoint.of_image(image, 2, 0, "cluster")
    assert checkpoint is not None
    for same in (image.copy(), checkpoint.image()):
        assert same.features == {"table.version": TABLE_VERSION.record(1)}


def test_a_level_that_is_not_known_is_refused_and_named():
    later = TABLE_VERSION.record(1).model_copy(update={"feature_level": 2, "release": "0.9.0"})
    with pytest.raises(
        UnsupportedVersionError, match=r"level 2, which spark-log 0\.9\.0"
    ) as raised:
        MetadataImage().replay(later)
    assert (raised.value.feature, raised.value.level) == ("table.version", 2)


def test_a_level_is_never_lowered(monkeypatch):
    two = replace(TABLE_VERSION, releases=("0.4.0", "0.5.0"))
    monkeypatch.setitem(FEATURES, two.name, two)
    finalized = {two.name: two.record(2)}
    assert list(feature_updates(finalized, {two.name: 2})) == []
    with pytest.raises(InvalidUpdateVersionError, match="below the finalized level 2"):
        list(feature_updates(finalized, {two.name: 1}))

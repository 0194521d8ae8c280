"""The newest record of each key in any compacted log, against a dictionary."""

from unittest.mock import patch

from hypothesis import settings
from hypothesis.stateful import invariant

from spark_log.log.rewrite import key_indexes
from tests.log.clean.test_compaction_stateful import CompactedLogMachine


class KeyLookupMachine(CompactedLogMachine):
    """Every key is looked up after each step: by the open logs, and by one just opened."""

    table_format = "none"
    isolation_level = "read_committed"

    def reopened(self, handle=0, **settings):
        return super().reopened(handle, table_format=self.table_format, **settings)

    @invariant()
    def each_key_has_its_newest_record(self):
        if not hasattr(self, "rows"):
            return
        last = self.last_offsets()
        for log in (*self.logs, self.reopened()):
            # A log that is open may not know yet that the start has moved.
            start = 0 if log in self.logs else self.start
            for number in range(7):
                key = b"%d" % number
                offset = last.get(key, -1)
                found = log.find_key(key, isolation_level=self.isolation_level)
                if found is None:  # never written, deleted, or a tombstone that was removed
                    assert offset < self.start or self.rows[offset]["value"] is None
                    continue
                assert found.offsets().tolist() == [offset]
                assert offset >= start
                value = found.records.column("value")[0].as_py()
                assert value == self.rows[offset]["value"]


class ParquetKeyLookupMachine(KeyLookupMachine):
    """The compacted segments are Parquet, each with a key index."""

    table_format = "delta"
    isolation_level = "read_uncommitted"

    def compact(self, handle, memory_bytes):
        with patch.object(key_indexes, "MIN_INDEXED_RECORDS", 0):
            super().compact(handle, memory_bytes)


TestKeyLookupStateful = KeyLookupMachine.TestCase
TestKeyLookupStateful.settings = settings(max_examples=20, stateful_step_count=20)
TestParquetKeyLookupStateful = ParquetKeyLookupMachine.TestCase
TestParquetKeyLookupStateful.settings = settings(max_examples=40, stateful_step_count=20)

"""Transactions written by hand: the records of one producer, and the marker that ends them."""

from spark_log.record import EndTransactionMarker, ProducerAppend
from tests.record.samples import START_US, record_batch, row


class TransactionWriter:
    """A transactional producer of one partition, without the state of a transactional id.

    Args:
        log: the partition's log.
        producer_id: a number that no other producer has.
    """

    def __init__(self, log, producer_id=7):
        self._log = log
        self._producer_id = producer_id
        self._epoch = 0
        self._sequence = 0

    def send(self, *values, timestamp=START_US):
        """Append records to the open transaction as one segment; return the first offset."""
        producer = ProducerAppend(
            self._producer_id, self._epoch, self._sequence, is_transactional=True
        )
        self._sequence += len(values)
        records = record_batch([row(value, timestamp=timestamp) for value in values])
        return self._log.append(records, producer=producer).base_offset

    def commit(self):
        """End the transaction; return the offset of its marker."""
        return self._end(True)

    def abort(self):
        """End the transaction; return the offset of its marker."""
        return self._end(False)

    def _end(self, is_committed):
        self._epoch, self._sequence = self._epoch + 1, 0
        marker = EndTransactionMarker(self._producer_id, self._epoch, is_committed)
        return self._log.append_markers([marker]).base_offset

"""``format("spark_log")``: Spark's entry into the package."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_log.datasource.options.kafka_options import warn_ignored_options
from spark_log.datasource.options.options import parse_read_options, parse_write_options
from spark_log.datasource.read.batch_reader import batch_reader_class
from spark_log.datasource.read.schema import read_schema
from spark_log.datasource.stream.stream_reader import LogStreamReader
from spark_log.datasource.worker_process import without_traceback
from spark_log.datasource.write.batch_writer import LogBatchWriter
from spark_log.datasource.write.stream_writer import LogStreamWriter
from spark_log.errors import InvalidOptionError


class SparkLogDataSource(DataSource):
    """A drop-in for ``format("kafka")``; options in `datasource.options.options`.

    Found without registration through the module ``pyspark_spark_log``.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "spark_log"

    @without_traceback
    def schema(self) -> StructType:
        """The connector's columns, with ``headers`` when ``includeHeaders`` says so."""
        return read_schema(parse_read_options(self.options).include_headers)

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        """Batch reads."""
        options = parse_read_options(self.options, is_stream=False)
        warn_ignored_options(options.ignored)
        return batch_reader_class()(schema, options)

    # Not `without_traceback`: Spark 4.2.0 meets an error of its own when this one fails, and tells that
    # one; what we said stands in the traceback alone.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Streaming reads, as micro-batches."""
        options = parse_read_options(self.options, is_stream=True)
        warn_ignored_options(options.ignored)
        return LogStreamReader(schema, options)

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Batch writes."""
        if overwrite:
            raise InvalidOptionError(
                "save mode overwrite is not allowed for spark_log: a log is only appended to; "
                'use mode("append"), or delete the topic first',
                key="mode",
            )
        return LogBatchWriter(schema, parse_write_options(self.options))

    @without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Streaming writes. Output mode complete comes as ``overwrite``; it appends too."""
        return LogStreamWriter(schema, parse_write_options(self.options))

"""Spark's entry point to the package: the data source ``spark_log``."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_log.datasource.worker_process import enter_worker, silence_broken_pipe, without_traceback
from spark_log.errors import InvalidOptionError


class SparkLogDataSource(DataSource):
    """Data source that replaces Spark's Kafka connector: ``format("spark_log")``.

    It takes the options of the connector (`datasource.options` lists them) and ``path``, the
    cluster root. Spark finds it without registration through the module ``pyspark_spark_log``.

    Parquet segments of a topic that is a table are read like any other segment. So a stream that
    starts at ``earliest`` begins in the table and continues in the log, and its checkpoint, which
    has offsets alone, stays valid while files are converted. `read_table` reads a table faster.

    Spark starts several Python processes for the first query of a session. Each imports this
    module, one of them only for the format's name. Therefore the methods, not the module, import
    what is slow to import, such as Arrow.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name.

        A process that looks the format up calls nothing else.
        """
        silence_broken_pipe()
        return "spark_log"

    @without_traceback
    def schema(self) -> StructType:
        """Return the connector's columns; with the option ``includeHeaders``, also ``headers``."""
        from spark_log.datasource.options import parse_read_options
        from spark_log.datasource.read import read_schema

        enter_worker()
        return read_schema(parse_read_options(self.options).include_headers)

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for a batch query."""
        from spark_log.datasource.options import parse_read_options, warn_ignored_options
        from spark_log.datasource.read import batch_reader_class

        enter_worker()
        options = parse_read_options(self.options, is_stream=False)
        warn_ignored_options(options.ignored)
        return batch_reader_class()(schema, options)

    # Not `without_traceback`: when this method fails, Spark 4.2.0 reports an internal error of its
    # own, and only the traceback contains our message.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader for a streaming query."""
        from spark_log.datasource.options import parse_read_options
        from spark_log.datasource.stream import LogStreamReader

        enter_worker()
        return LogStreamReader(schema, parse_read_options(self.options, is_stream=True))

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer for ``df.write``.

        Raises:
            InvalidOptionError: save mode overwrite, or an invalid option.
        """
        if overwrite:
            raise InvalidOptionError(
                "save mode overwrite is not supported by format spark_log, because a log can only "
                'be appended to; use mode("append"), or delete the topic first',
                key="mode",
            )
        from spark_log.datasource.options import parse_write_options
        from spark_log.datasource.write import LogBatchWriter

        enter_worker()
        return LogBatchWriter(schema, parse_write_options(self.options))

    @without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the writer for one micro-batch of ``df.writeStream``.

        Spark passes output mode complete as ``overwrite``. The records are appended all the same.
        """
        from spark_log.datasource.options import parse_write_options
        from spark_log.datasource.write import LogStreamWriter

        enter_worker()
        return LogStreamWriter(schema, parse_write_options(self.options))

"""``format("spark_log")``: Spark's entry into the package."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from spark_log.datasource.batch_reader import LogBatchReader, read_schema
from spark_log.datasource.options import parse_read_options, parse_write_options
from spark_log.datasource.writer import LogWriter
from spark_log.errors import InvalidOptionError


class SparkLogDataSource(DataSource):
    """A drop-in for ``format("kafka")``; options in `datasource.options`.

    Found without registration through the module ``pyspark_spark_log``.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "spark_log"

    def schema(self) -> StructType:
        """The connector's columns, with ``headers`` when ``includeHeaders`` says so."""
        return read_schema(parse_read_options(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Batch reads."""
        return LogBatchReader(schema, parse_read_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Batch writes."""
        if overwrite:
            raise InvalidOptionError(
                "save mode overwrite is not allowed for spark_log: a log is only appended to; "
                'use mode("append"), or delete the topic first',
                key="mode",
            )
        return LogWriter(schema, parse_write_options(self.options))

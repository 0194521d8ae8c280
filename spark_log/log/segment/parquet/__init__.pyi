from .column_statistics import ColumnStatistics as ColumnStatistics
from .file import open_parquet_file as open_parquet_file
from .pages import PAGE_DTYPE as PAGE_DTYPE
from .typed_columns import LeftOutValues as LeftOutValues
from .writer import ParquetSegmentWriter as ParquetSegmentWriter

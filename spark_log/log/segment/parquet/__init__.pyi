from .file import open_parquet_file as open_parquet_file
from .writer import ParquetSegmentWriter as ParquetSegmentWriter

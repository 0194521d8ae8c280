from .file import open_parquet_file as open_parquet_file
from .pages import PAGE_DTYPE as PAGE_DTYPE
from .writer import ParquetSegmentWriter as ParquetSegmentWriter

from .log_end import LogEnd as LogEnd
from .log_end import is_last_gone as is_last_gone
from .log_view import DirectoryListing as DirectoryListing
from .log_view import LogView as LogView
from .opened_segments import OpenedSegments as OpenedSegments
from .opened_segments import open_in_order as open_in_order
from .partition_directory import PartitionDirectory as PartitionDirectory
from .segment_table import SegmentTable as SegmentTable

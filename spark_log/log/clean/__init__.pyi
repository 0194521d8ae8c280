from .cleaner import CleanReport as CleanReport
from .cleaner import PartitionCleaner as PartitionCleaner
from .cleaner import count_mergeable as count_mergeable
from .compacted_segment import OnProgress as OnProgress
from .compactor import DEDUPE_BUFFER_BYTES as DEDUPE_BUFFER_BYTES
from .compactor import MIN_DEDUPE_BUFFER_BYTES as MIN_DEDUPE_BUFFER_BYTES
from .log_to_clean import first_dirty_offset as first_dirty_offset

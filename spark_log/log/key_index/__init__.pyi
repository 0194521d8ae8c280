from .format import MAX_STORED_BYTES as MAX_STORED_BYTES
from .format import MIN_INDEXED_RECORDS as MIN_INDEXED_RECORDS
from .reader import KeyEntry as KeyEntry
from .reader import KeyIndex as KeyIndex
from .rows import digest_of_rows as digest_of_rows
from .rows import index_rows as index_rows
from .writer import KeyIndexWriter as KeyIndexWriter

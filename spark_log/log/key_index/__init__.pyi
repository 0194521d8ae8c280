from .format import MAX_STORED_BYTES as MAX_STORED_BYTES
from .format import MIN_INDEXED_RECORDS as MIN_INDEXED_RECORDS
from .reader import KeyEntry as KeyEntry
from .reader import KeyIndex as KeyIndex
from .writer import KeyIndexWriter as KeyIndexWriter

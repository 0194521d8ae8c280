from .format import MIN_INDEXED_RECORDS as MIN_INDEXED_RECORDS
from .reader import KeyIndex as KeyIndex
from .writer import KeyIndexWriter as KeyIndexWriter

from .kafka_options import warn_ignored_options as warn_ignored_options
from .option_parser import STORAGE_PREFIX as STORAGE_PREFIX
from .owned_transaction import OwnedTransaction as OwnedTransaction
from .read_options import ReadOptions as ReadOptions
from .read_options import parse_read_options as parse_read_options
from .write_options import CREATE_TOPIC as CREATE_TOPIC
from .write_options import WriteOptions as WriteOptions
from .write_options import parse_write_options as parse_write_options

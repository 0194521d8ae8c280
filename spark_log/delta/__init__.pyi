from .cleanup import DeltaCleanup as DeltaCleanup
from .cleanup import interval_us as interval_us
from .delta_log import DeltaLog as DeltaLog
from .files import DataFile as DataFile
from .files import DataFiles as DataFiles
from .state import TableState as TableState
from .state import Transaction as Transaction
from .state import Version as Version

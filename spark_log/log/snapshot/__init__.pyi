from .snapshot import Snapshot as Snapshot
from .snapshots import Snapshots as Snapshots

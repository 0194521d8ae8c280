from .changes import add_voter as add_voter
from .changes import found_from_root as found_from_root
from .changes import remove_voter as remove_voter
from .changes import synchronize as synchronize
from .membership import Membership as Membership
from .membership import Standing as Standing
from .quorum_store import MappedQuorumStore as MappedQuorumStore
from .quorum_store import QuorumStore as QuorumStore

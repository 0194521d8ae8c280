"""A root that does not answer any more."""

from spark_log.errors import StorageUnavailableError
from spark_log.storage.memory import MemoryStore

_CALLS = (
    *("create_root", "put_if_absent", "put", "sync", "read", "read_tail", "read_tail_and_size"),
    *("open_buffer", "list", "list_hidden", "list_directories", "head", "delete"),
    *("delete_directory", "is_gone"),
)


def _fail(store, *_, **__):
    raise StorageUnavailableError(f"{store.url} does not answer", path=store.url)


class DeadStore(MemoryStore):
    """Every call fails."""


for _name in _CALLS:
    setattr(DeadStore, _name, _fail)


def open_root(root, dead):
    """Open a root, or a dead one in its place."""
    from spark_log.storage.factory import open_one_root

    store = open_one_root(root, None)
    if root in (dead or {}):
        url, store = store.url, DeadStore("dead")
        store.url = url
    return store


def open_quorum(roots, dead=()):
    """Return a quorum that was created while all its roots answered."""
    from spark_log.storage.quorum import MappedQuorumStore

    MappedQuorumStore(roots, None, open_root).create_root()
    return MappedQuorumStore(roots, dict.fromkeys(dead), open_root)

"""Memory of a process, from Linux's ``/proc``."""

from pathlib import Path


def memory_bytes(pid: int | str = "self") -> dict[str, int]:
    """Return the fields of ``/proc/<pid>/status`` that are sizes, such as ``VmRSS``, in bytes.

    The result is empty if the process has ended, or the system has no ``/proc``.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines)
    return {each[0].rstrip(":"): int(each[1]) * 1024 for each in fields if each[2:] == ["kB"]}

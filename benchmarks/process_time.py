"""Processor time of this process and of all that it started, from Linux's ``/proc``."""

import os
from collections import defaultdict
from pathlib import Path


def tree_cpu_s() -> float:
    """Return the processor time, in seconds, that this process and its descendants used so far.

    The time of a process that has ended counts if its parent waited for it, as Spark does for its
    Python workers. It is 0 on a system without ``/proc``.
    """
    spent: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = each.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        pid = int(each.parent.name)
        children[int(fields[1])].append(pid)
        spent[pid] = sum(map(int, fields[11:15]))
    ticks, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        ticks += spent.get(pid, 0)
        waiting += children[pid]
    return ticks / os.sysconf("SC_CLK_TCK")

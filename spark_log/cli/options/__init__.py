"""Arguments and options of commands, each group written once; jobs have the same ones.

- `root`: the cluster root, which nearly every command has; `properties`: ``KEY=VALUE`` arguments.
- `topics`, `groups`, `start`, `records`, …: the options of one subject.
- `option_groups`: how a command gets a group of options as one parameter.
- `completion`: names for the shell's completion.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)

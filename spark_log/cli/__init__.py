"""The command line. `main.main` is the console script ``spark-log``.

- `commands/`: one file for each command, or for each group of commands. `main.COMMANDS` lists them.
- `options/`: the arguments and options that commands share; `format/`: the tables, lines and JSON
  that they print.
- `records/`, `cluster/`: the work of the larger commands.
- `terminal/`: errors, exit statuses, signals, keys and questions.
- `lazy_command`: imports a command's file when it runs; `page`: writes docs/cli.md.

Answers go to stdout; notes, progress and errors go to stderr. An error is one line. The exit status
is 2 for a mistake of the user and 1 for a failure.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)

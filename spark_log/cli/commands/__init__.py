"""The commands of ``spark-log``: one file for each command, or for each group of commands.

A new command is a file with a function of its name (or an ``app`` for several), and a line
in `main.COMMANDS`; `lazy_command` imports the file when the command runs. `submit` has the jobs.
"""

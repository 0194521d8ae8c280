"""The command line: `main.main` is the console script ``spark-log``, one file per command group.

Everything on stdout is the answer; notes, progress and errors go to stderr. Mistakes of the user
end with status 2, failures with 1, both in one line (`errors.run`).
"""

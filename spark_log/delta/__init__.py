"""A Delta table without Spark: its log, its data files, and the cleanup of both.

`state` holds what the log says, `parse` reads it from bytes, `reader` keeps it up to date, and
`delta_log` commits to it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""`Admin`, by subject: topics, configs, quotas, offsets, records, producers, log dirs, groups.

Each subject is a file with the methods that `Admin` has for it. `tables` turns answers of `Admin`
into Arrow tables; `offset_reset` works out new offsets for ``spark-log groups reset-offsets``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

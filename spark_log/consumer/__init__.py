"""Reading topics from a Python process: `Consumer`, and the types that its users see.

`operations/` has the methods of `Consumer` by subject, `fetch/` the thread that reads ahead, and
`group/` the consumer's part in its group.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""The methods of `Consumer`, by subject: subscription, polls, positions, topics, commits.

Each subject is a file with the methods that `Consumer` has for it. `consumer_access` has the parts
to which they delegate.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

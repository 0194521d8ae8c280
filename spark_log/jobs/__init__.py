"""The code of the scripts in ``jobs/``: group jobs, destinations, reprocessing, cleaning."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""The store on S3, Google Cloud Storage and Azure Blob Storage, through obstore."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""The store on S3, Google Cloud Storage and Azure Blob Storage, through obstore."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)

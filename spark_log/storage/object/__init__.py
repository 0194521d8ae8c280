"""The store on object storage (S3, Google Cloud Storage, Azure), through obstore."""

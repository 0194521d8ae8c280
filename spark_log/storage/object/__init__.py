"""The store on S3, Google Cloud Storage and Azure Blob Storage, through obstore."""

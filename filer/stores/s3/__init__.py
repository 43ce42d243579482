"""A bucket of S3, or of any service that speaks its protocol and honours conditional puts.

Everything that BraidMQ knows about S3 is here. Begin with `s3_store.py`. `s3_settings.py` says where the bucket is,
`s3_body.py` how bodies are sent, `s3_errors.py` what S3's answers mean. `open_s3.py` opens the store by its URL.
"""

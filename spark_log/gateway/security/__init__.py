"""TLS and SASL of a gateway's listener.

- `users`: the users, in a file and in the metadata.
- `users_file`: the file. It has SCRAM's salted hashes, never a password.
- `scram`: SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), the server's part.
- `authenticator`: the exchange of one connection, with SCRAM or PLAIN.
- `tls`: the TLS context.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)

"""The location of an object store's root: parsed from an fsspec URL and fsspec's storage options.

Users give the options that they would give to s3fs, gcsfs and adlfs. Requests are sent by obstore
(docs/adr/0004), whose options have other names: `fsspec_options` translates them. deltalake uses
the same Rust library as obstore.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from spark_log.errors import InvalidRootError
from spark_log.storage.object.fsspec_options import Config, FsspecOptions, Service, read_options
from spark_log.storage.store import StorageOptions

SERVICES: Final[Mapping[str, Service]] = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
}
"""The service of each URL scheme."""


_DELTA_SCHEMES: Final = {"s3": "s3", "gcs": "gs", "azure": "az"}
_DELTA_PREFIXES: Final = {"s3": "aws_", "gcs": "google_", "azure": "azure_storage_"}


@dataclass(frozen=True, slots=True)
class ObjectLocation:
    """A bucket (or container), a prefix in it, and the options to reach it.

    Attributes:
        url: the URL that the user gave, without a slash at its end; has no credentials.
        service: the service whose API is used.
        bucket: the bucket or container.
        prefix: the path in the bucket, without slashes at its ends; may be empty.
        config: obstore's options, with credentials.
        allow_http: whether requests may go unencrypted.
        verify_tls: False accepts any certificate.
    """

    url: str
    service: Service
    bucket: str
    prefix: str
    config: Config = field(default_factory=dict, repr=False)
    allow_http: bool = False
    verify_tls: bool = True

    @classmethod
    def parse(cls, url: str, options: StorageOptions | None = None) -> ObjectLocation:
        """Return the location of ``url``.

        Args:
            url: ``s3://bucket/prefix``, or another scheme of `SERVICES`.
            options: storage options with fsspec's names. A value may be a string where fsspec
                expects a boolean (``true``) or a dict (JSON), as on a command line.

        Raises:
            InvalidRootError: the URL names no bucket, or contains credentials.
            InvalidConfigurationError: an option is unknown. The error names it, not its value.
        """
        scheme, _, rest = url.partition("://")
        service = SERVICES[scheme]
        authority, _, path = rest.partition("/")
        parsed = FsspecOptions(service, options or {})
        bucket = authority
        if service == "azure" and "@" in authority:
            bucket, _, host = authority.partition("@")
            parsed.config["account_name"] = host.partition(".")[0]
        if not bucket or any(sign in bucket for sign in "@:"):
            raise InvalidRootError(
                f"the root's URL names no bucket: expected {scheme}://BUCKET/PREFIX, and "
                f"credentials only as storage options",
                path=f"{scheme}://",
            )
        segments = [segment for segment in path.split("/") if segment]
        if "?" in path or any(segment in (".", "..") for segment in segments):
            raise InvalidRootError(
                f"a root in the bucket {bucket!r} cannot have '?', '.' or '..' as parts of its "
                f"path; a signature goes into the storage options",
                path=f"{scheme}://{bucket}",
            )
        read_options(parsed)
        prefix = "/".join(segments)
        return cls(
            url=f"{scheme}://{authority}/{prefix}".rstrip("/"),
            service=service,
            bucket=bucket,
            prefix=prefix,
            config=parsed.config,
            allow_http=parsed.allow_http,
            verify_tls=parsed.verify_tls,
        )

    @property
    def server(self) -> str:
        """Host and port of the endpoint, or the bucket's URL without an endpoint."""
        for key in ("endpoint", "base_url"):
            host = urlsplit(str(self.config.get(key, ""))).netloc.rpartition("@")[2]
            if host:
                return host
        return f"{self.url.partition('://')[0]}://{self.bucket}"

    def delta_url(self, directory: str) -> str:
        """Return the URL of a directory for deltalake."""
        path = "/".join(part for part in (self.bucket, self.prefix, directory) if part)
        return f"{_DELTA_SCHEMES[self.service]}://{path}"

    def delta_options(self) -> dict[str, str]:
        """Return deltalake's storage options for this location, with credentials."""
        prefix = _DELTA_PREFIXES[self.service]
        options = {f"{prefix}{key}": _text(value) for key, value in self.config.items()}
        if self.service == "s3":
            options["aws_conditional_put"] = "etag"
        if self.allow_http:
            options["allow_http"] = "true"
        if not self.verify_tls:
            options["allow_invalid_certificates"] = "true"
        return options


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

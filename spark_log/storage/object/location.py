"""Where an object store's root lies and how it is reached: an fsspec URL and fsspec's options.

Users say what they would say to s3fs, gcsfs and adlfs; what carries the requests is obstore
(docs/adr/0004), whose names differ. Here is the one place where the former become the latter, and
what deltalake, which stands on the same Rust library, is told.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from spark_log.errors import InvalidConfigurationError, InvalidRootError, nearest
from spark_log.storage.store import StorageOptions

Service = Literal["s3", "gcs", "azure"]

SERVICES: Final[Mapping[str, Service]] = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
}
"""Which service a URL's scheme names."""

Config = dict[str, str | bool]

_DELTA_SCHEMES: Final = {"s3": "s3", "gcs": "gs", "azure": "az"}
_DELTA_PREFIXES: Final = {"s3": "aws_", "gcs": "google_", "azure": "azure_storage_"}


@dataclass(frozen=True, slots=True)
class ObjectLocation:
    """A bucket (or container), a prefix in it, and how it is reached.

    Attributes:
        url: as the user wrote it, without a slash at the end; never with credentials.
        service: whose API is spoken.
        bucket: or container.
        prefix: without slashes at its ends; may be empty.
        config: obstore's names and values, credentials among them.
        allow_http: requests may go unencrypted.
        verify_tls: False takes any certificate.
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
            url: ``s3://bucket/prefix``, and so on for the schemes in `SERVICES`.
            options: with fsspec's names. A value may be a text where fsspec wants a boolean
                (``true``) or a dict (JSON), as it comes from a command line.

        Raises:
            InvalidRootError: the URL names no bucket, or carries credentials.
            InvalidConfigurationError: an option is not known (named, its value never shown).
        """
        scheme, _, rest = url.partition("://")
        service = SERVICES[scheme]
        authority, _, path = rest.partition("/")
        given = _Options(service, options or {})
        bucket = authority
        if service == "azure" and "@" in authority:
            bucket, _, host = authority.partition("@")
            given.config["account_name"] = host.partition(".")[0]
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
        _READERS[service](given)
        given.check_all_read()
        prefix = "/".join(segments)
        return cls(
            url=f"{scheme}://{authority}/{prefix}".rstrip("/"),
            service=service,
            bucket=bucket,
            prefix=prefix,
            config=given.config,
            allow_http=given.allow_http,
            verify_tls=given.verify_tls,
        )

    @property
    def server(self) -> str:
        """Where requests go: host and port of the endpoint, else the bucket's URL."""
        for key in ("endpoint", "base_url"):
            host = urlsplit(str(self.config.get(key, ""))).netloc.rpartition("@")[2]
            if host:
                return host
        return f"{self.url.partition('://')[0]}://{self.bucket}"

    def delta_url(self, directory: str) -> str:
        """Return a directory as deltalake writes URLs."""
        path = "/".join(part for part in (self.bucket, self.prefix, directory) if part)
        return f"{_DELTA_SCHEMES[self.service]}://{path}"

    def delta_options(self) -> dict[str, str]:
        """Return what deltalake needs to reach the same place, credentials among it."""
        prefix = _DELTA_PREFIXES[self.service]
        options = {f"{prefix}{key}": _text(value) for key, value in self.config.items()}
        if self.service == "s3":
            options["aws_conditional_put"] = "etag"
        if self.allow_http:
            options["allow_http"] = "true"
        if not self.verify_tls:
            options["allow_invalid_certificates"] = "true"
        return options


class _Options:
    """fsspec's options, taken one after the other; what nobody took is unknown."""

    def __init__(self, service: Service, options: StorageOptions) -> None:
        self.config: Config = {}
        self.allow_http = False
        self.verify_tls = True
        self._service = service
        self._left: dict[str, object] = dict(options)
        self._known: set[str] = set()

    def take(self, name: str) -> object:
        self._known.add(name)
        value = self._left.pop(name, None)
        return None if value == "" else value

    def text(self, name: str, key: str) -> str | None:
        """Move an option to obstore's ``key``."""
        value = self.take(name)
        if value is None:
            return None
        self.config[key] = self.checked(name, str(value))
        return str(value)

    def flag(self, name: str) -> bool | None:
        value = self.take(name)
        if value is None or isinstance(value, bool):
            return value
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        raise self._wrong(name, "true or false")

    def nested(self, name: str) -> dict[str, object]:
        """Take an option that is a dict, or the JSON of one, and look into it by ``name.key``."""
        value = self.take(name)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                raise self._wrong(name, "a JSON object") from None
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self._wrong(name, "a dict, or a JSON object")
        inner = {f"{name}.{key}": item for key, item in value.items()}
        self._left.update(inner)
        return inner

    def endpoint(self, url: str | None, key: str) -> None:
        if url is not None:
            self.config[key] = self.checked("endpoint_url", url)
            self.allow_http = url.startswith("http://")

    def check_environment(self, names: Mapping[str, str]) -> None:
        """Check environment variables that are read where an option is not given.

        Args:
            names: of variables, and obstore's key for what each says.
        """
        for name, key in names.items():
            if key not in self.config and name in os.environ:
                self._check(f"the environment variable {name}", os.environ[name], name)

    def checked(self, name: str, value: str) -> str:
        """Return the value of an option that goes into requests.

        Raises:
            InvalidConfigurationError: no request can carry it.
        """
        self._check(f"storage option {name!r}", value, name)
        return value

    def _check(self, where: str, value: str, name: str) -> None:
        """Refuse what cannot be in a header of a request, and say what it is, but not the value."""
        wrong = next((sign for sign in value if not "!" <= sign <= "~"), None)
        if wrong is None:
            return
        what = {"\n": "a newline", "\r": "a carriage return", "\t": "a tab", " ": "a space"}.get(
            wrong, "a character that is not ASCII" if wrong > "~" else "a control character"
        )
        end = " at its end: was it read from a file?" if value.rstrip() != value else ""
        raise InvalidConfigurationError(
            f"{where} contains {what}{end}; nothing that goes into a request can; remove it",
            key=name,
        )

    def check_all_read(self) -> None:
        for name in self._left:
            close = nearest(name, self._known)
            hint = (
                f"did you mean {close[0]!r}?"
                if close
                else f"known are {', '.join(sorted(self._known))}"
            )
            raise InvalidConfigurationError(
                f"unknown storage option {name!r} for {self._service}; {hint}",
                key=name,
                nearest=close[0] if close else None,
            )

    def _wrong(self, name: str, expected: str) -> InvalidConfigurationError:
        return InvalidConfigurationError(f"storage option {name!r} is not {expected}", key=name)


def _read_s3(given: _Options) -> None:
    """What s3fs calls them; ``region`` besides, which it takes from botocore's settings."""
    given.nested("client_kwargs")
    given.nested("s3_additional_kwargs")
    given.nested("config_kwargs")
    given.nested("config_kwargs.s3")
    for name, key in {
        "key": "access_key_id",
        "secret": "secret_access_key",
        "token": "session_token",
        "region": "region",
        "client_kwargs.aws_access_key_id": "access_key_id",
        "client_kwargs.aws_secret_access_key": "secret_access_key",
        "client_kwargs.aws_session_token": "session_token",
        "client_kwargs.region_name": "region",
        "s3_additional_kwargs.ServerSideEncryption": "server_side_encryption",
        "s3_additional_kwargs.SSEKMSKeyId": "sse_kms_key_id",
    }.items():
        given.text(name, key)
    if given.flag("anon"):
        given.config["skip_signature"] = True
    if given.flag("requester_pays"):
        given.config["request_payer"] = True
    if given.take("config_kwargs.s3.addressing_style") == "virtual":
        given.config["virtual_hosted_style_request"] = True
    inner, outer = given.take("client_kwargs.endpoint_url"), given.take("endpoint_url")
    endpoint = outer if inner is None else inner
    given.endpoint(None if endpoint is None else str(endpoint), "endpoint")
    if endpoint is None:
        from_environment = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get(
            "AWS_ENDPOINT_URL", ""
        )
        given.allow_http = from_environment.startswith("http://")
    given.check_environment(_S3_ENVIRONMENT)
    use_ssl = [given.flag(name) for name in ("use_ssl", "client_kwargs.use_ssl")]
    given.allow_http |= False in use_ssl
    given.verify_tls = given.flag("client_kwargs.verify") is not False


def _read_gcs(given: _Options) -> None:
    """What gcsfs calls them; ``project`` is for making buckets, and is only accepted."""
    given.take("project")
    token = given.take("token")
    if isinstance(token, Mapping):
        given.config["service_account_key"] = json.dumps(dict(token))
    elif token == "anon":
        # Not skip_signature, which obstore minds for reads only.
        given.config["service_account_key"] = json.dumps(_NO_GCS_ACCOUNT)
    elif isinstance(token, str) and token.lstrip().startswith("{"):
        given.config["service_account_key"] = token
    elif token not in (None, "google_default", "cloud"):
        given.config["application_credentials"] = os.path.expanduser(str(token))
    endpoint = given.take("endpoint_url")
    given.endpoint(None if endpoint is None else str(endpoint), "base_url")


def _read_azure(given: _Options) -> None:
    """What adlfs calls them."""
    connection = str(given.take("connection_string") or "")
    parts = dict(part.partition("=")[::2] for part in connection.split(";") if part)
    for part, key in {
        "AccountName": "account_name",
        "AccountKey": "account_key",
        "SharedAccessSignature": "sas_key",
    }.items():
        if part in parts:
            given.config[key] = given.checked(f"connection_string.{part}", parts[part])
    for name, key in {
        "account_name": "account_name",
        "account_key": "account_key",
        "sas_token": "sas_key",
        "tenant_id": "tenant_id",
        "client_id": "client_id",
        "client_secret": "client_secret",
    }.items():
        given.text(name, key)
    if given.flag("anon"):
        given.config["skip_signature"] = True
    host = given.take("account_host")
    given.endpoint(parts.get("BlobEndpoint") or (f"https://{host}" if host else None), "endpoint")


_S3_ENVIRONMENT: Final = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
    "AWS_REGION": "region",
    "AWS_DEFAULT_REGION": "region",
    "AWS_ENDPOINT_URL_S3": "endpoint",
    "AWS_ENDPOINT_URL": "endpoint",
}
_NO_GCS_ACCOUNT: Final = {
    "disable_oauth": True,
    "client_email": "",
    "private_key": "",
    "private_key_id": "",
}
_READERS: Final[Mapping[Service, Callable[[_Options], None]]] = {
    "s3": _read_s3,
    "gcs": _read_gcs,
    "azure": _read_azure,
}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

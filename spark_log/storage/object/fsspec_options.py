"""Translates fsspec's storage options (of s3fs, gcsfs and adlfs) into obstore's options."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Final, Literal

from spark_log.errors import InvalidConfigurationError, nearest
from spark_log.storage.store import StorageOptions

Service = Literal["s3", "gcs", "azure"]
Config = dict[str, str | bool]


class FsspecOptions:
    """fsspec's options. Each is read once; an option that was not read is unknown.

    Attributes:
        service: the service that the options are for.
        config: obstore's options, translated so far.
        allow_http: whether requests may go unencrypted.
        verify_tls: False accepts any certificate.
    """

    def __init__(self, service: Service, options: StorageOptions) -> None:
        """Translate nothing yet; `read_options` does."""
        self.config: Config = {}
        self.allow_http = False
        self.verify_tls = True
        self.service = service
        self._left: dict[str, object] = dict(options)
        self._known: set[str] = set()

    def take(self, name: str) -> object:
        """Read an option; return its value, None if it is missing or empty."""
        self._known.add(name)
        value = self._left.pop(name, None)
        return None if value == "" else value

    def text(self, name: str, key: str) -> str | None:
        """Read an option, and set obstore's ``key`` to its value."""
        value = self.take(name)
        if value is None:
            return None
        self.config[key] = self.checked(name, str(value))
        return str(value)

    def flag(self, name: str) -> bool | None:
        """Read a boolean option; None if it is missing."""
        value = self.take(name)
        if value is None or isinstance(value, bool):
            return value
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        raise self._wrong(name, "true or false")

    def nested(self, name: str) -> dict[str, object]:
        """Read an option that is a dict or its JSON; its items become options ``name.key``."""
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
        """Set the URL of the endpoint as the value of obstore's ``key``."""
        if url is not None:
            self.config[key] = self.checked("endpoint_url", url)
            self.allow_http = url.startswith("http://")

    def check_environment(self, names: Mapping[str, str]) -> None:
        """Check the environment variables that obstore reads if an option is not given.

        Args:
            names: variable → obstore's key for it.
        """
        for name, key in names.items():
            if key not in self.config and name in os.environ:
                self._check(f"the environment variable {name}", os.environ[name], name)

    def checked(self, name: str, value: str) -> str:
        """Return the value of an option that is sent in requests.

        Raises:
            InvalidConfigurationError: the value has a character that no request can carry.
        """
        self._check(f"storage option {name!r}", value, name)
        return value

    def _check(self, where: str, value: str, name: str) -> None:
        """Refuse characters that a request header cannot carry; the error hides the value."""
        wrong = next((sign for sign in value if not "!" <= sign <= "~"), None)
        if wrong is None:
            return
        what = {"\n": "a newline", "\r": "a carriage return", "\t": "a tab", " ": "a space"}.get(
            wrong, "a character that is not ASCII" if wrong > "~" else "a control character"
        )
        end = " at its end (was it read from a file?)" if value.rstrip() != value else ""
        raise InvalidConfigurationError(
            f"{where} contains {what}{end}, which a request cannot carry; remove it",
            key=name,
        )

    def check_all_read(self) -> None:
        """Refuse options that were not read.

        Raises:
            InvalidConfigurationError: an option is unknown.
        """
        for name in self._left:
            close = nearest(name, self._known)
            hint = (
                f"did you mean {close[0]!r}?"
                if close
                else f"known options are {', '.join(sorted(self._known))}"
            )
            raise InvalidConfigurationError(
                f"unknown storage option {name!r} for {self.service}; {hint}",
                key=name,
                nearest=close[0] if close else None,
            )

    def _wrong(self, name: str, expected: str) -> InvalidConfigurationError:
        return InvalidConfigurationError(f"storage option {name!r} is not {expected}", key=name)


def read_options(options: FsspecOptions) -> None:
    """Translate all options of the service into obstore's.

    Raises:
        InvalidConfigurationError: an option is unknown, or has a value that cannot be used.
    """
    _READERS[options.service](options)
    options.check_all_read()


def _read_s3(options: FsspecOptions) -> None:
    """Translate the options of s3fs, and ``region``, which s3fs takes from botocore's settings."""
    options.nested("client_kwargs")
    options.nested("s3_additional_kwargs")
    options.nested("config_kwargs")
    options.nested("config_kwargs.s3")
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
        options.text(name, key)
    if options.flag("anon"):
        options.config["skip_signature"] = True
    if options.flag("requester_pays"):
        options.config["request_payer"] = True
    if options.take("config_kwargs.s3.addressing_style") == "virtual":
        options.config["virtual_hosted_style_request"] = True
    inner, outer = options.take("client_kwargs.endpoint_url"), options.take("endpoint_url")
    endpoint = outer if inner is None else inner
    options.endpoint(None if endpoint is None else str(endpoint), "endpoint")
    if endpoint is None:
        from_environment = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get(
            "AWS_ENDPOINT_URL", ""
        )
        options.allow_http = from_environment.startswith("http://")
    options.check_environment(_S3_ENVIRONMENT)
    use_ssl = [options.flag(name) for name in ("use_ssl", "client_kwargs.use_ssl")]
    options.allow_http |= False in use_ssl
    options.verify_tls = options.flag("client_kwargs.verify") is not False


def _read_gcs(options: FsspecOptions) -> None:
    """Translate the options of gcsfs. ``project`` is accepted and not used."""
    options.take("project")
    token = options.take("token")
    if isinstance(token, Mapping):
        options.config["service_account_key"] = json.dumps(dict(token))
    elif token == "anon":
        # skip_signature does not work here: obstore applies it to reads only.
        options.config["service_account_key"] = json.dumps(_NO_GCS_ACCOUNT)
    elif isinstance(token, str) and token.lstrip().startswith("{"):
        options.config["service_account_key"] = token
    elif token not in (None, "google_default", "cloud"):
        options.config["application_credentials"] = os.path.expanduser(str(token))
    endpoint = options.take("endpoint_url")
    options.endpoint(None if endpoint is None else str(endpoint), "base_url")


def _read_azure(options: FsspecOptions) -> None:
    """Translate the options of adlfs."""
    connection = str(options.take("connection_string") or "")
    parts = dict(part.partition("=")[::2] for part in connection.split(";") if part)
    for part, key in {
        "AccountName": "account_name",
        "AccountKey": "account_key",
        "SharedAccessSignature": "sas_key",
    }.items():
        if part in parts:
            options.config[key] = options.checked(f"connection_string.{part}", parts[part])
    for name, key in {
        "account_name": "account_name",
        "account_key": "account_key",
        "sas_token": "sas_key",
        "tenant_id": "tenant_id",
        "client_id": "client_id",
        "client_secret": "client_secret",
    }.items():
        options.text(name, key)
    if options.flag("anon"):
        options.config["skip_signature"] = True
    host = options.take("account_host")
    options.endpoint(parts.get("BlobEndpoint") or (f"https://{host}" if host else None), "endpoint")


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
_READERS: Final[Mapping[Service, Callable[[FsspecOptions], None]]] = {
    "s3": _read_s3,
    "gcs": _read_gcs,
    "azure": _read_azure,
}

"""obstore's clients for an object store: one for each kind of request.

They differ in what they do when no answer comes. A read is sent again by the client. A conditional
put is not: the second delivery would find the object of the first, so
`storage.object.conditional_put` decides what to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from obstore.store import AzureStore, GCSStore, S3Store

from spark_log.errors import StorageError, UnsupportedStoreError
from spark_log.storage.object.errors import call_obstore
from spark_log.storage.object.location import ObjectLocation

if TYPE_CHECKING:  # these exist for type checkers only
    from obstore.store import ClientConfig, RetryConfig, S3Credential

Client = S3Store | GCSStore | AzureStore

REQUEST_TIMEOUT_MS: Final = 30_000
"""Default of ``request.timeout.ms``."""

_PUT_PATIENCE: Final = 2
"""A put may take twice as long: its limit includes the time in which its data is sent."""

_NO_RETRIES: Final[RetryConfig] = {"max_retries": 0}
_CLASSES: Final = {"s3": S3Store, "gcs": GCSStore, "azure": AzureStore}

_is_started = False
_is_forked = False


class ObjectClients:
    """The clients for one location. Each is created on its first use; threads share them.

    Raises (on use):
        UnsupportedStoreError: no client can be created from the storage options.
        StorageError: this process was forked from one that had used an object store.
    """

    def __init__(
        self, location: ObjectLocation, request_timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> None:
        self._location = location
        self._timeout_ms = request_timeout_ms

    @property
    def reader(self) -> Client:
        """Client for reads, and for writes that may be delivered twice: retries with jitter."""
        self._check_process()
        return self._reader

    @property
    def writer(self) -> Client:
        """Client for conditional puts: sends every request once."""
        self._check_process()
        return self._writer

    @property
    def bulk(self) -> Client:
        """Client for multipart uploads under a hidden name: retries, with a long timeout."""
        self._check_process()
        return self._bulk

    @property
    def copier(self) -> Client:
        """Client for conditional copies: sends every request once, with a long timeout."""
        self._check_process()
        return self._copier

    @cached_property
    def _reader(self) -> Client:
        # An answer may be large: limit the time without any data, not the whole request.
        return self._client(
            self._retries, {"timeout": "1h", "read_timeout": f"{self._timeout_ms}ms"}
        )

    @cached_property
    def _writer(self) -> Client:
        return self._client(_NO_RETRIES, {"timeout": f"{_PUT_PATIENCE * self._timeout_ms}ms"})

    @cached_property
    def _bulk(self) -> Client:
        return self._client(self._retries, {"timeout": "5min"})

    @cached_property
    def _copier(self) -> Client:
        return self._client(_NO_RETRIES, {"timeout": "15min"})

    @property
    def _retries(self) -> RetryConfig:
        return {
            "max_retries": 6,
            "backoff": {
                "init_backoff": timedelta(milliseconds=50),
                "max_backoff": timedelta(seconds=5),
                "base": 2,
            },
            "retry_timeout": timedelta(milliseconds=self._timeout_ms),
        }

    def _client(self, retries: RetryConfig, timeouts: ClientConfig) -> Client:
        global _is_started  # noqa: PLW0603 - says whether a fork would be harmful
        _is_started = True
        location = self._location
        options: dict[str, Any] = {
            "prefix": location.prefix or None,
            "config": dict(location.config),
            "retry_config": retries,
            "client_options": {
                **timeouts,
                "allow_http": location.allow_http,
                "allow_invalid_certificates": not location.verify_tls,
            },
        }
        if location.service == "s3":
            options["config"]["copy_if_not_exists"] = "multipart"
            if _has_unrelated_token(location.config):
                options["credential_provider"] = _StaticCredential(location.config)
        try:
            client: Client = call_obstore(_CLASSES[location.service], location.bucket, **options)
        except Exception:
            # The message of obstore may quote the value of the option that it cannot read.
            raise UnsupportedStoreError(
                f"{location.url}: no client can be created from the storage options "
                f"{_names(location.config)}; check their values",
                path=location.url,
            ) from None
        return client

    def _check_process(self) -> None:
        if _is_forked:
            raise StorageError(
                f"{self._location.url}: this process was forked from one that had used an object "
                f"store, and lacks its threads; start processes by 'spawn' or 'forkserver'",
                path=self._location.url,
            )


class _StaticCredential:
    """The access key from the options, without the session token of the environment."""

    def __init__(self, config: dict[str, str | bool]) -> None:
        self._credential: S3Credential = {
            "access_key_id": str(config["access_key_id"]),
            "secret_access_key": str(config["secret_access_key"]),
            "token": None,
            "expires_at": None,
        }

    def __call__(self) -> S3Credential:
        return self._credential


def _has_unrelated_token(config: dict[str, str | bool]) -> bool:
    in_environment = os.environ.get("AWS_SESSION_TOKEN") or os.environ.get("AWS_TOKEN")
    own = {"access_key_id", "secret_access_key"} <= config.keys() and "session_token" not in config
    return own and bool(in_environment)


def _names(config: Iterable[str]) -> str:
    return ", ".join(sorted(config)) or "(none)"


def _note_fork() -> None:
    # obstore's threads exist only in the process that started them: a child would wait forever.
    global _is_forked  # noqa: PLW0603
    _is_forked = _is_forked or _is_started


os.register_at_fork(after_in_child=_note_fork)

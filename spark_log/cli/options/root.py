"""The cluster root of a command.

It is given by ``--root``, else by the environment variable ``SPARK_LOG_ROOT``, else by the key
``root`` in the properties file. The properties file is given by ``--config``, else it is
``spark-log.properties`` or ``conf/spark-log.properties`` in the working directory. Storage options
are the file's ``storage.*`` keys; ``--storage-option`` overrides them. The storage options of other
brokers are the file's ``brokers.<id>.storage.*`` keys. Storage options are never shown.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from spark_log.admin import Admin, share_cluster
from spark_log.cli.options.properties import parse_pairs, warn_of_secrets
from spark_log.cluster import Cluster, open_cluster
from spark_log.config import (
    BrokerOptions,
    Properties,
    ToolConfig,
    load_properties,
)
from spark_log.errors import InvalidConfigurationError

DEFAULT_FILES: Final = ("spark-log.properties", "conf/spark-log.properties")

SECRETS_INSTEAD: Final = (
    "write storage.KEY=VALUE into a properties file that only you can read (chmod 600), or set the "
    "environment variables of the storage, such as AWS_SECRET_ACCESS_KEY"
)

RootOption = Annotated[
    str | None,
    typer.Option(
        "--root",
        envvar="SPARK_LOG_ROOT",
        metavar="URL",
        help="Root of the cluster: a path or a URL. [default: root in the properties file]",
    ),
]
CommandConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help=f"Properties file: root, storage.*, … [default: {' or '.join(DEFAULT_FILES)}]",
    ),
]
ConfigFileOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "--command-config",
        metavar="FILE",
        help=f"Properties file: root, storage.*, … [default: {' or '.join(DEFAULT_FILES)}]",
    ),
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="Option for the root's file system; overrides storage.KEY in the properties file. "
        "Repeatable.",
    ),
]


@dataclass(frozen=True, slots=True)
class Root:
    """The cluster root of a command line.

    Attributes:
        url: the path or URL that the user gave.
        storage_options: the options of the file system; never shown.
        broker_options: broker id → the options of the file system of its root; never shown.
        settings: the other settings of the properties file.
    """

    url: str
    storage_options: Mapping[str, object] = field(repr=False)
    broker_options: BrokerOptions = field(repr=False)
    settings: ToolConfig

    @classmethod
    def from_options(
        cls,
        root: RootOption = None,
        config: ConfigFileOption = None,
        storage_option: StorageOption = None,
    ) -> Root:
        """Return the root that the user gave, without accessing it.

        Raises:
            InvalidConfigurationError: no root was given, or the properties file has an error.
        """
        settings, from_file, broker_options = _read_properties(config)
        options = parse_pairs("--storage-option", storage_option or [], secret=True)
        warn_of_secrets("--storage-option", options, SECRETS_INSTEAD)
        url = settings.root if root is None else root
        if not url:
            raise InvalidConfigurationError(
                "which root? Give --root, set SPARK_LOG_ROOT, or write root=… into "
                f"{DEFAULT_FILES[0]}",
                key="root",
            )
        return cls(os.path.expanduser(url), {**from_file, **options}, broker_options, settings)

    @property
    def client_arguments(self) -> dict[str, Any]:
        """The storage options, as keyword arguments of `Producer`, `Consumer` and `Admin`."""
        return {
            "storage_options": self.storage_options,
            "broker_storage_options": self.broker_options,
        }

    def cluster(self, *, client_rack: str = "") -> Cluster:
        """Open the cluster; wait for ``default.api.timeout.ms`` if its storage does not answer.

        Args:
            client_rack: the rack whose replicas are read first; empty for none.

        Raises:
            KafkaTimeoutError: the timeout has passed.
            RootNotFoundError: the root does not exist.
            InvalidRootError: the root is a file, or was made by an incompatible version.
            UnsupportedStoreError: the storage cannot promise put-if-absent.
        """
        return open_cluster(
            self.url,
            self.storage_options,
            timeout_ms=self.settings.default_api_timeout_ms,
            broker_options=self.broker_options,
            client_rack=client_rack,
        )

    def cluster_now(self) -> Cluster:
        """Open the cluster without waiting, for a command that reports whether its storage answers.

        Raises:
            StorageUnavailableError: the storage does not answer.
            StorageError: another error of `cluster`.
        """
        return Cluster(self.url, self.storage_options, broker_options=self.broker_options)

    def admin(self, cluster: Cluster | None = None) -> Admin:
        """Return an `Admin` for the root, which is not accessed yet.

        Args:
            cluster: the root, if it is open already.
        """
        admin = Admin(
            self.url,
            **self.client_arguments,
            default_api_timeout_ms=self.settings.default_api_timeout_ms,
        )
        if cluster is not None:
            share_cluster(admin, cluster)
        return admin


class RootOfNewTopic(Root):
    """The root of ``topics create``, whose ``--config`` is a setting ``KEY=VALUE`` of the topic."""

    __slots__ = ()

    @classmethod
    def from_options(
        cls,
        root: RootOption = None,
        command_config: CommandConfigOption = None,
        storage_option: StorageOption = None,
    ) -> Root:
        """Return the root that the user gave, without accessing it.

        Raises:
            InvalidConfigurationError: no root was given, or the properties file has an error.
        """
        return Root.from_options(root, command_config, storage_option)


def _read_properties(named: Path | None) -> Properties:
    defaults = (Path(name) for name in DEFAULT_FILES)
    path = named or next((path for path in defaults if path.is_file()), None)
    if path is None:
        return Properties(ToolConfig(), {}, {})
    try:
        return load_properties(path)
    except InvalidConfigurationError as error:
        raise InvalidConfigurationError(
            error.message if str(path) in error.message else f"{path}: {error.message}",
            key=error.key,
            nearest=error.nearest,
        ) from None
    except OSError as error:
        raise InvalidConfigurationError(
            f"cannot read the properties file {path}: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidConfigurationError(f"{path} is not a text file in UTF-8") from error

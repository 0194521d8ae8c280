"""Options of the commands that mirror topics."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from re import Pattern
from typing import TYPE_CHECKING, Annotated

import typer

from spark_log.cli.options.metrics_port import MetricsPort
from spark_log.cli.options.properties import load_pairs, parse_pairs, warn_of_secrets
from spark_log.cli.options.root import Root
from spark_log.errors import InvalidConfigurationError

if TYPE_CHECKING:
    from spark_log.mirror import KafkaCluster, LogAddress, MirrorSettings, TopicFilter


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """The Kafka cluster of a command line.

    Attributes:
        settings: the settings of librdkafka; never shown.
    """

    settings: dict[str, str] = field(repr=False)

    @classmethod
    def from_options(
        cls,
        bootstrap_server: Annotated[
            str | None,
            typer.Option(
                "--bootstrap-server",
                "--bootstrap-servers",
                envvar="KAFKA_BOOTSTRAP_SERVERS",
                metavar="HOST:PORT,...",
                help="Brokers of the Kafka cluster.",
            ),
        ] = None,
        kafka_config: Annotated[
            Path | None,
            typer.Option(
                "--kafka-config",
                metavar="FILE",
                help="Properties file with settings of librdkafka, such as sasl.password.",
            ),
        ] = None,
        kafka_property: Annotated[
            list[str] | None,
            typer.Option(
                "--kafka-property",
                metavar="KEY=VALUE",
                help="Setting of librdkafka, such as security.protocol=SASL_SSL; overrides the "
                "file. Repeatable.",
            ),
        ] = None,
    ) -> KafkaOptions:
        """Return the options.

        Raises:
            InvalidConfigurationError: no broker was given, or the file cannot be read.
        """
        pairs = parse_pairs("--kafka-property", kafka_property or [], secret=True)
        warn_of_secrets("--kafka-property", pairs, "write it into a file for --kafka-config")
        given = {**({} if kafka_config is None else load_pairs(kafka_config)), **pairs}
        if bootstrap_server:
            given["bootstrap.servers"] = bootstrap_server
        if not given.get("bootstrap.servers"):
            raise InvalidConfigurationError(
                "which Kafka cluster? Give --bootstrap-server, or set KAFKA_BOOTSTRAP_SERVERS"
            )
        return cls(given)

    def cluster(self) -> KafkaCluster:
        """Return the cluster, which is not accessed yet.

        Raises:
            InvalidConfigurationError: a setting does not exist, or confluent-kafka is missing.
        """
        from spark_log.mirror import KafkaCluster

        return KafkaCluster(self.settings)


_Topics = Annotated[
    list[str] | None,
    typer.Option("--topics", metavar="REGEX", help="Topics to mirror. Repeatable. [default: .*]"),
]
_Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--topics-exclude",
        metavar="REGEX",
        help="Topics not to mirror. Repeatable. [default: internal ones]",
    ),
]


@dataclass(frozen=True, slots=True)
class TopicPatterns:
    """The patterns of mirrored topics.

    Attributes:
        include: the regular expressions of topics to mirror.
        exclude: the regular expressions of topics to leave out, besides internal topics.
    """

    include: tuple[str, ...]
    exclude: tuple[str, ...]

    @classmethod
    def from_options(cls, topics: _Topics = None, exclude: _Exclude = None) -> TopicPatterns:
        """Return the options, which `filter` checks."""
        return cls(tuple(topics or (".*",)), tuple(exclude or ()))

    def filter(self) -> TopicFilter:
        """Return the filter.

        Raises:
            InvalidConfigurationError: a pattern is no regular expression.
        """
        from spark_log.mirror import DEFAULT_EXCLUDED, TopicFilter

        return TopicFilter.parse(self.include, (*DEFAULT_EXCLUDED, *self.exclude))


UntilEnd = Annotated[
    bool,
    typer.Option(
        "--until-end", help="End when everything is mirrored, instead of waiting for more."
    ),
]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The duration of a mirror's run, and its tasks besides mirroring."""

    sync_groups: tuple[str, ...]
    refresh_interval_s: float
    until_end: bool
    metrics_port: int | None

    @classmethod
    def from_options(
        cls,
        sync_groups: Annotated[
            list[str] | None,
            typer.Option(
                "--sync-groups",
                metavar="REGEX",
                help="Translate committed offsets of these groups of the source, at each refresh "
                "and at the end. Repeatable.",
            ),
        ] = None,
        refresh_interval_s: Annotated[
            float,
            typer.Option(
                "--refresh-interval-seconds",
                min=0.1,
                help="Seconds between two searches for new topics, partitions and settings.",
            ),
        ] = 30.0,
        until_end: UntilEnd = False,
        metrics_port: MetricsPort = None,
    ) -> RunOptions:
        """Return the options; `groups` checks the groups among them."""
        return cls(tuple(sync_groups or ()), refresh_interval_s, until_end, metrics_port)

    def groups(self) -> tuple[Pattern[str], ...]:
        """Return the regular expressions of `sync_groups`.

        Raises:
            InvalidConfigurationError: one of them is no regular expression.
        """
        from spark_log.mirror import patterns

        return patterns(self.sync_groups, "sync-groups")


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """The topics and the settings of a mirror."""

    topics: TopicPatterns
    policy: str
    kafka_alias: str
    log_alias: str
    commit_interval_ms: int
    fail_on_data_loss: bool

    @classmethod
    def from_options(
        cls,
        topics: _Topics = None,
        exclude: _Exclude = None,
        policy: Annotated[
            str,
            typer.Option(
                "--replication-policy",
                metavar="identity|default",
                help="identity: a topic keeps its name. default: the source's alias precedes it.",
            ),
        ] = "identity",
        kafka_alias: Annotated[
            str, typer.Option("--kafka-alias", metavar="NAME", help="Name of the Kafka cluster.")
        ] = "kafka",
        log_alias: Annotated[
            str, typer.Option("--log-alias", metavar="NAME", help="Name of the log.")
        ] = "spark-log",
        commit_interval_ms: Annotated[
            int,
            typer.Option(
                "--commit-interval-ms",
                min=1,
                help="Time for which a transaction collects records; up to five times as long "
                "while the mirror lags.",
            ),
        ] = 1_000,
        fail_on_data_loss: Annotated[
            bool,
            typer.Option(
                "--fail-on-data-loss/--no-fail-on-data-loss",
                help="Whether to fail if records were deleted before they were mirrored.",
            ),
        ] = True,
    ) -> MirrorOptions:
        """Return the options, which `settings` checks."""
        return cls(
            TopicPatterns.from_options(topics, exclude),
            policy,
            kafka_alias,
            log_alias,
            commit_interval_ms,
            fail_on_data_loss,
        )

    def settings(self) -> MirrorSettings:
        """Return the settings of a mirror.

        Raises:
            InvalidConfigurationError: an option has a wrong value.
        """
        from spark_log.mirror import MirrorSettings, ReplicationPolicy

        if self.policy not in list(ReplicationPolicy):
            raise InvalidConfigurationError(
                f"--replication-policy is {self.policy!r}; give identity or default"
            )
        return MirrorSettings(
            self.kafka_alias,
            self.log_alias,
            ReplicationPolicy(self.policy),
            self.topics.filter(),
            self.commit_interval_ms,
            fail_on_data_loss=self.fail_on_data_loss,
        )

    def log(self, root: Root) -> LogAddress:
        """Return the log, which is not accessed yet."""
        from spark_log.mirror import LogAddress

        return LogAddress(root.url, root.client_arguments)

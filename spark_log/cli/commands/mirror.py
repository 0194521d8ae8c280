"""``spark-log mirror``: a bridge between Kafka and the log, as MirrorMaker 2."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spark_log.cli.format import Output, print_json, print_note, print_table, status_line
from spark_log.cli.options import (
    SECRETS_INSTEAD,
    KafkaOptions,
    MirrorOptions,
    Root,
    RunOptions,
    TopicPatterns,
    UntilEnd,
    metrics_served,
    parse_pairs,
    warn_of_secrets,
    with_option_groups,
)
from spark_log.cli.terminal import with_examples
from spark_log.errors import InvalidConfigurationError, SparkLogError
from spark_log.storage import OutageWait, is_unavailable
from spark_log.threads import Deadline
from spark_log.util import StopSignals

if TYPE_CHECKING:
    from spark_log.mirror import GroupTranslation, Mirror, Side, TranslatedGroup

app = typer.Typer(rich_markup_mode=None)

_PAUSE_S: Final = 0.5
_MAX_PAUSE_S: Final = 2.0
"""Limits of the pause between two reads of a source, which is a tenth of the time without records.
"""
_MB: Final = 1_000_000


@app.command("from-kafka")
@with_examples(
    "spark-log mirror from-kafka --bootstrap-server localhost:9092 --until-end",
    "spark-log mirror from-kafka --topics 'shop.*' --until-end",
)
@with_option_groups
def from_kafka(
    run: RunOptions, kafka: KafkaOptions, options: MirrorOptions, root: Root, output: Output
) -> None:
    """Mirror topics of Kafka into the log.

    Each record arrives exactly once, with its key, value, headers, timestamp and partition. Topics
    are created with their settings. The command may be killed at any time: the next one continues.
    SIGTERM and Ctrl-C end it after the present transaction.
    """
    from spark_log.mirror import GroupTranslation, KafkaToLog

    arguments = kafka.cluster(), options.log(root), options.settings()
    translation = GroupTranslation(kafka.cluster(), options.log(root), run.groups())
    _run(KafkaToLog(*arguments), run, translation, output)


@app.command("to-kafka")
@with_examples("spark-log mirror to-kafka --topics flights --until-end")
@with_option_groups
def to_kafka(
    run: RunOptions, kafka: KafkaOptions, options: MirrorOptions, root: Root, output: Output
) -> None:
    """Mirror topics of the log into Kafka.

    Each record arrives exactly once, with its key, value, headers, timestamp (in milliseconds) and
    partition. A topic that was mirrored from Kafka under the same name continues after the last
    record that came from there. Use this command to go back after writers have moved to the log.
    """
    from spark_log.mirror import GroupTranslation, LogToKafka

    root.cluster()  # it must exist
    arguments = kafka.cluster(), options.log(root), options.settings()
    translation = GroupTranslation(kafka.cluster(), options.log(root), run.groups())
    _run(LogToKafka(*arguments), run, translation, output)


@app.command("from-root")
@with_examples("spark-log mirror from-root --source /data/log --root /backup --until-end")
@with_option_groups
def from_root(
    topics: TopicPatterns,
    root: Root,
    output: Output,
    source: Annotated[
        str,
        typer.Option("--source", metavar="URL", help="Root to copy from. --root is the target."),
    ],
    source_storage_option: Annotated[
        list[str] | None,
        typer.Option(
            "--source-storage-option",
            metavar="KEY=VALUE",
            help="Option for the source's file system. Repeatable. [default: those of the root]",
        ),
    ] = None,
    throttle: Annotated[
        float | None,
        typer.Option("--throttle", metavar="N", help="Maximum bytes per second to copy."),
    ] = None,
    until_end: UntilEnd = False,
) -> None:
    """Copy topics of another root with all offsets.

    If the source is local, the checksum of each batch is checked before it is copied. The command
    may be killed at any time: the next one continues. The target root is created if it does not
    exist, and no other program may write to these topics of the target.
    """
    from spark_log.mirror import RootMirror
    from spark_log.util import Throttle

    if throttle is not None and throttle <= 0:
        raise InvalidConfigurationError(f"--throttle is {throttle}, expected more than 0")
    chosen = topics.filter()
    given = parse_pairs("--source-storage-option", source_storage_option or [], secret=True)
    warn_of_secrets("--source-storage-option", given, SECRETS_INSTEAD)
    there = replace(root, url=source, storage_options=given or root.storage_options)
    source_cluster = there.cluster()
    root.admin().create_topics([])  # the root, if it does not exist
    limit = Throttle(throttle or math.inf)
    copied, copied_s = 0, time.monotonic()
    with StopSignals() as stop, status_line("Copying") as show:

        def on_progress(done_bytes: int) -> None:
            nonlocal copied, copied_s
            copied += done_bytes
            copied_s = time.monotonic()
            show(f"Copying: {copied / _MB:,.1f} MB")
            limit(done_bytes)

        mirror = RootMirror(source_cluster, root.cluster(), chosen, on_progress)
        limit_ms = root.settings.default_api_timeout_ms if until_end else math.inf
        outage = OutageWait(lambda: Deadline("copying", "default.api.timeout.ms", limit_ms))
        while True:
            try:
                done = mirror.copy()
            except SparkLogError as error:
                # A copy continues where it was, also after a write of unknown outcome.
                may_pass = error.retriable or is_unavailable(error)
                if stop.is_set() or not may_pass:
                    raise
                outage.check(error)
                outage.pause()
                continue
            outage.end()
            if stop.is_set() or until_end:
                break
            idle_s = time.monotonic() - copied_s
            time.sleep(min(max(_PAUSE_S, idle_s / 10), _MAX_PAUSE_S))
    rows = [[*each.topic_partition, each.end_offset, each.lag] for each in done]
    if output.is_json:
        document = {name.replace("-", "_"): each for name, each in mirror.metrics().items()}
        names = ("topic", "partition", "end_offset", "lag")
        parts = [dict(zip(names, row, strict=True)) for row in rows]
        print_json({**document, "partitions": parts})
    else:
        print_table(["Topic", "Partition", "LogEndOffset", "Lag"], rows)
    if stop.exit_status:
        raise typer.Exit(stop.exit_status)


@app.command("groups")
@with_examples("spark-log mirror groups --to log --group billing --dry-run")
@with_option_groups
def groups(
    kafka: KafkaOptions,
    options: MirrorOptions,
    root: Root,
    output: Output,
    to: Annotated[
        str, typer.Option("--to", metavar="log|kafka", help="The side that gets the offsets.")
    ],
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="REGEX", help="Ids of groups. Repeatable. [default: .*]"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the offsets, and commit nothing.")
    ] = False,
) -> None:
    """Translate committed offsets of groups once.

    A consumer of the group continues at exactly the record that it would have read next. The
    offsets of a group with members on the target side are not changed, and no offset is moved back.
    Exit status: 0 done, 1 some offsets are after the last mirrored record.
    """
    from spark_log.mirror import GroupTranslation, Side, patterns, read_offset_syncs

    if to not in ("log", "kafka"):
        raise InvalidConfigurationError(f"--to is {to!r}; give log or kafka")
    expressions = patterns(group or [".*"], "group")
    settings = options.settings()
    root.cluster()
    cluster, log = kafka.cluster(), options.log(root)
    offset_syncs = read_offset_syncs(cluster, log, settings.offset_sync_topic)
    source = Side.KAFKA if to == "log" else Side.LOG
    done = GroupTranslation(cluster, log, expressions).translate(
        offset_syncs, source, dry_run=dry_run
    )
    _print_groups(done, output)
    if any(each.waiting for each in done):
        raise typer.Exit(1)


def _run(mirror: Mirror, run: RunOptions, translation: GroupTranslation, output: Output) -> None:
    """Run a mirror until it is told to stop, and print its metrics."""
    from spark_log.mirror import MirrorMetrics

    source: Side = mirror.source
    translated: list[TranslatedGroup] = []

    def translate() -> None:
        served.update()
        if run.sync_groups:
            translated[:] = translation.translate(mirror.offset_syncs, source)

    served = MirrorMetrics(mirror)
    with (
        StopSignals() as stop,
        metrics_served(served.families, run.metrics_port),
        status_line("Mirroring") as show,
        mirror,
    ):
        mirror.run(
            stop.is_set,
            refresh_interval_s=run.refresh_interval_s,
            until_end=run.until_end,
            on_transaction=lambda: show(_line(served.update())),
            on_refresh=translate,
        )
        metrics = mirror.metrics()
    if output.is_json:
        document: dict[str, object] = {
            name.replace("-", "_"): each for name, each in metrics.items()
        }
        if run.sync_groups:
            document["groups"] = [each.document() for each in translated]
        print_json(document)
    else:
        print_table(["Metric", "Value"], [[name, each] for name, each in metrics.items()])
        if run.sync_groups:
            _print_groups(translated, output)
    if not metrics["partition-count"]:
        print_note("nothing was mirrored: no topic matches --topics, or all matches are excluded")
    if stop.exit_status:
        raise typer.Exit(stop.exit_status)


def _print_groups(done: list[TranslatedGroup], output: Output) -> None:
    if output.is_json:
        print_json({"groups": [each.document() for each in done]})
        return
    rows: list[list[object]] = [
        [each.group_id, tp.topic, tp.partition, offset.offset, "committed"]
        for each in done
        for tp, offset in sorted(each.offsets.items())
    ]
    rows += [[each.group_id, *tp, None, "not mirrored yet"] for each in done for tp in each.waiting]
    rows += [[each.group_id, "-", None, None, "has members"] for each in done if each.is_active]
    print_table(["Group", "Topic", "Partition", "Offset", "State"], rows)


def _line(metrics: dict[str, float]) -> str:
    count, lag = int(metrics["record-count"]), int(metrics["records-lag"])
    return f"Mirroring: {count:,} records, lag {lag:,}"

"""``spark-log brokers``: registers, describes, fences and unregisters brokers (storage roots)."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from spark_log.cli.format import Output, counted, print_json, print_table, print_text
from spark_log.cli.options import Root, with_option_groups
from spark_log.cli.terminal import with_examples
from spark_log.types import BrokerDescription
from spark_log.util import printable

app = typer.Typer(rich_markup_mode=None)

BrokerId = Annotated[int, typer.Argument(metavar="ID", help="Id of the broker.")]


@app.command("register")
@with_examples("spark-log brokers register 3 disk3 --rack east")
@with_option_groups
def register_broker(
    broker_id: BrokerId,
    log_dir: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="Root of the broker: a path or a URL, without credentials. It is created if it "
            "does not exist.",
        ),
    ],
    root: Root,
    output: Output,
    rack: Annotated[
        str | None, typer.Option("--rack", help="Rack (zone, region) that the root is in.")
    ] = None,
) -> None:
    """Register a storage root as a broker. The cluster's root is created if it does not exist.

    Give options of the broker's file system as brokers.ID.storage.KEY in the properties file.
    Without any, those of the cluster's root are used if the URLs have the same scheme.
    """
    broker = root.admin().register_broker(broker_id, os.path.expanduser(log_dir), rack=rack)
    text = f"Registered broker {broker_id} at {printable(broker.log_dir)}."
    output.answer(text, _document(broker))


@app.command("list")
@with_examples("spark-log brokers list")
@with_option_groups
def list_brokers(root: Root, output: Output) -> None:
    """List the brokers: id, state, rack, root."""
    brokers = root.admin().list_brokers()
    if output.is_json:
        print_json({"brokers": [_document(broker) for broker in brokers]})
        return
    print_table(
        ["Broker", "State", "Rack", "Root"],
        [[each.broker_id, each.state, each.rack or "", each.log_dir] for each in brokers],
    )


@app.command("describe")
@with_examples("spark-log brokers describe", "spark-log brokers describe 1 2")
@with_option_groups
def describe_brokers(
    root: Root,
    output: Output,
    broker_ids: Annotated[
        list[int] | None, typer.Argument(metavar="ID", help="Ids of brokers. [default: all]")
    ] = None,
) -> None:
    """Describe brokers: registrations, and numbers of partitions."""
    cluster = root.admin().describe_cluster()
    brokers = cluster.brokers
    if broker_ids:
        image = root.cluster().image()
        wanted = [image.broker(broker_id).broker_id for broker_id in broker_ids]
        brokers = tuple(broker for broker in brokers if broker.broker_id in wanted)
    if output.is_json:
        documents = [_document(broker) for broker in brokers]
        print_json({"cluster_id": cluster.cluster_id, "brokers": documents})
        return
    print_text(f"ClusterId: {cluster.cluster_id}")
    for broker in brokers:
        rack = f"  Rack: {printable(broker.rack)}" if broker.rack else ""
        print_text("")
        print_text(f"Broker: {broker.broker_id}  State: {broker.state}{rack}")
        print_text(f"Root: {printable(broker.log_dir)}")
        print_text(
            f"Replicas: {broker.replica_count}  InSync: {broker.in_sync_count}  "
            f"Leaders: {broker.leader_count}"
        )
        if broker.incarnation_id:
            print_text(f"Epoch: {broker.broker_epoch}  IncarnationId: {broker.incarnation_id}")


@app.command("alter")
@with_examples("spark-log brokers alter 0 --rack east")
@with_option_groups
def alter_broker(
    broker_id: BrokerId,
    root: Root,
    output: Output,
    rack: Annotated[
        str, typer.Option("--rack", help="Rack (zone, region) that the root is in; '' for none.")
    ],
) -> None:
    """Change the rack of a broker, such as 0, the cluster's root. Its replicas stay."""
    broker = root.admin().alter_broker(broker_id, rack=rack or None)
    where = f"in rack {printable(rack)}" if rack else "in no rack"
    output.answer(f"Broker {broker_id} is {where}.", _document(broker))


@app.command("fence")
@with_examples("spark-log brokers fence 2")
@with_option_groups
def fence_broker(broker_id: BrokerId, root: Root, output: Output) -> None:
    """Fence a broker: it may not lead a partition."""
    broker = root.admin().fence_broker(broker_id)
    output.answer(f"Broker {broker_id} is fenced.", _document(broker))


@app.command("unfence")
@with_examples("spark-log brokers unfence 2")
@with_option_groups
def unfence_broker(broker_id: BrokerId, root: Root, output: Output) -> None:
    """Let a fenced broker lead partitions again."""
    broker = root.admin().unfence_broker(broker_id)
    output.answer(f"Broker {broker_id} is not fenced.", _document(broker))


@app.command("unregister")
@with_examples("spark-log brokers unregister 2")
@with_option_groups
def unregister_broker(broker_id: BrokerId, root: Root, output: Output) -> None:
    """Unregister a broker. One that holds replicas gets no new ones and stays registered.

    Move its replicas to other brokers, then unregister it again. Files in its root stay.
    """
    held = root.admin().unregister_broker(broker_id)
    document: dict[str, object] = {
        "broker": broker_id,
        "unregistered": not held,
        "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in held],
    }
    if not held:
        output.answer(f"Unregistered broker {broker_id}.", document)
        return
    output.answer(
        f"Broker {broker_id} gets no new replicas, and stays registered as long as it holds "
        f"{counted(len(held), 'replica')}.",
        document,
    )


def _document(broker: BrokerDescription) -> dict[str, object]:
    return {
        "broker": broker.broker_id,
        "root": broker.log_dir,
        "rack": broker.rack,
        "state": broker.state,
        "fenced": broker.fenced,
        "epoch": broker.broker_epoch,
        "incarnation_id": broker.incarnation_id,
        "replicas": broker.replica_count,
        "in_sync": broker.in_sync_count,
        "leaders": broker.leader_count,
    }

"""The actions of ``spark-log reassign-partitions``, with the output of Kafka's tool."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

from spark_log.admin import Admin
from spark_log.cli.format import Output, counted, print_json, print_note, print_text
from spark_log.cli.options import Root
from spark_log.errors import InvalidReplicaAssignmentError
from spark_log.metadata import (
    current_assignment,
    format_reassignment,
    propose_assignment,
    verify_reassignment,
)
from spark_log.types import (
    AlterConfigOp,
    ConfigResource,
    PartitionReassignment,
    TopicPartition,
)

THROTTLE: Final = "replication.throttled.rate"
"""The config that ``--throttle`` sets."""

ReassignmentPlan = dict[TopicPartition, tuple[int, ...]]
"""Partition → the brokers that shall have a replica of it."""


def generate_plan(
    root: Root,
    output: Output,
    topics: list[str],
    brokers: list[int],
    *,
    is_rack_aware: bool,
    replication_factor: int | None,
) -> None:
    """Propose a plan for all partitions of some topics."""
    image = root.cluster().image()
    current = format_reassignment(current_assignment(image, topics))
    proposed = format_reassignment(
        propose_assignment(
            image,
            topics,
            brokers,
            random=Random(),
            is_rack_aware=is_rack_aware,
            replication_factor=replication_factor,
        )
    )
    if output.is_json:
        print_json({"current": json.loads(current), "proposed": json.loads(proposed)})
        return
    print_text(f"Current partition replica assignment\n{current}\n")
    print_text(f"Proposed partition reassignment configuration\n{proposed}")


def execute_plan(
    root: Root,
    output: Output,
    plan: ReassignmentPlan,
    *,
    additional: bool,
    throttle: int | None,
    allow_factor_change: bool,
) -> None:
    """Begin the reassignments of a plan; print the current assignment, for a rollback.

    The throttle is set after the plan was accepted: a refused plan changes nothing.

    Raises:
        InvalidReplicaAssignmentError: some partition is being reassigned, and ``additional`` is
            false.
    """
    admin, image = root.admin(), root.cluster().image()
    if not additional and (others := admin.list_partition_reassignments()):
        raise InvalidReplicaAssignmentError(
            f"{counted(len(others), 'reassignment')} in progress, such as that of {min(others)}; "
            f"give --additional to start more"
        )
    present = current_assignment(image, {tp.topic for tp in plan})
    current = format_reassignment({tp: present[tp] for tp in plan if tp in present})
    admin.alter_partition_reassignments(plan, allow_replication_factor_change=allow_factor_change)
    if throttle is not None:
        admin.alter_configs([ConfigResource("broker", "", {THROTTLE: throttle})])
    if output.is_json:
        print_json({"current": json.loads(current), "started": [_key(tp) for tp in sorted(plan)]})
        return
    print_text(f"Current partition replica assignment\n\n{current}\n")
    print_text("Save this to use as the --reassignment-json-file option during rollback")
    names = ",".join(map(str, sorted(plan)))
    print_text(f"Successfully started partition reassignments for {names}")


def verify_plan(
    root: Root,
    output: Output,
    plan: ReassignmentPlan,
    *,
    clear_throttles: bool,
) -> bool:
    """Print the progress of a plan; return whether it is complete."""
    states = verify_reassignment(root.cluster().image(), plan)
    is_done = all(state.is_complete for state in states.values())
    if output.is_json:
        print_json(
            {
                "partitions": [
                    _key(tp)
                    | {
                        "replicas": list(state.current_replicas),
                        "target_replicas": list(state.target_replicas),
                        "done": state.done,
                    }
                    for tp, state in states.items()
                ]
            }
        )
    else:
        print_text("Status of partition reassignment:")
        for tp, state in states.items():
            if state.is_complete:
                text = f"Reassignment of partition {tp} is completed."
            elif not state.done:
                text = f"Reassignment of partition {tp} is still in progress."
            else:
                current, target = (
                    ",".join(map(str, each))
                    for each in (state.current_replicas, state.target_replicas)
                )
                text = (
                    f"There is no active reassignment of partition {tp}, but replica set is "
                    f"{current} rather than {target}."
                )
            print_text(text)
    if clear_throttles and all(state.done for state in states.values()):
        _clear_throttles(root.admin())
    return is_done


def cancel_plan(
    admin: Admin,
    output: Output,
    plan: ReassignmentPlan,
    *,
    clear_throttles: bool,
) -> None:
    """Cancel the reassignments of a plan's partitions, which get their replicas back."""
    active = list(admin.list_partition_reassignments(plan))
    if active:
        admin.alter_partition_reassignments(dict.fromkeys(active))
    if output.is_json:
        print_json({"cancelled": [_key(tp) for tp in active]})
    elif active:
        names = ",".join(map(str, active))
        print_text(f"Successfully cancelled partition reassignments for: {names}")
    else:
        print_text("None of the specified partition reassignments are active.")
    if clear_throttles:
        _clear_throttles(admin)


def list_reassigning(output: Output, found: dict[TopicPartition, PartitionReassignment]) -> None:
    """Print the reassignments in progress."""
    if output.is_json:
        print_json({"reassignments": [_key(tp) | _lists(each) for tp, each in found.items()]})
        return
    if not found:
        print_text("No partition reassignments found.")
        return
    print_text("Current partition reassignments:")
    for tp, each in found.items():
        parts = [
            f"{name.removesuffix('_replicas')}: {','.join(map(str, ids))}."
            for name, ids in _lists(each).items()
            if ids
        ]
        print_text(f"{tp}: {' '.join(parts)}")


def _clear_throttles(admin: Admin) -> None:
    """Remove the throttle when no partition is being reassigned, as Kafka's tool does."""
    if admin.list_partition_reassignments():
        return
    wanted = ConfigResource("broker", "", [THROTTLE])
    if admin.describe_configs([wanted], config_filter="modified")["broker"][""]:
        removal = ConfigResource("broker", "", {THROTTLE: (AlterConfigOp.DELETE, None)})
        admin.alter_configs([removal])
        print_note(f"{THROTTLE} of the cluster was removed.")


def _lists(found: PartitionReassignment) -> dict[str, Any]:
    return {
        "replicas": list(found.replicas),
        "adding_replicas": list(found.adding_replicas),
        "removing_replicas": list(found.removing_replicas),
    }


def _key(tp: TopicPartition) -> dict[str, Any]:
    return {"topic": tp.topic, "partition": tp.partition}

"""Groups of Kafka's clients, which a gateway coordinates.

- `group_state`: a group in the coordinator's memory: members, requests that wait, answers;
  `classic_decisions`: the group after an event, with answers, timers and the change to append.
- `coordinated_group`: one group with its log and the fence of its offsets; `group_coordinators`:
  all groups of a gateway, with timers. These are groups of the classic protocol.
- `consumer_heartbeat`, `coordinated_consumer_group`, `consumer_groups`: the same for the consumer
  protocol (KIP-848), whose decisions are in `spark_log.coordinator`: the gateway assigns.
- `group_timers`: the timers of a group, of either protocol.
- `commit_order`: the order of a member's commits.

Every generation, assignment and leave is a conditional append to the group's log before it is
answered, so of two coordinators one loses. Heartbeats and waiting joins are in memory alone.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)

"""Consumer groups: a group's state and log; how a member joins, commits and leaves."""

"""Consumer groups: membership, generations, heartbeats and fenced commits, without a server."""

"""What the scripts in ``jobs/`` run: a group's member, its destinations, reprocessing, cleaning."""

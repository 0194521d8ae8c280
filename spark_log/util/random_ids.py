"""Random ids, of topics, members and compactions."""

from __future__ import annotations

import base64
import uuid


def random_id() -> str:
    """Return a new random UUID as 22 characters of base64url (Kafka's ``Uuid.toString``).

    As in Kafka it never begins with a dash, which a shell command would take for an option.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text

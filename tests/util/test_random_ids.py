"""Random ids: 128 bits as text that a shell command does not take for an option."""

import base64
import uuid

from spark_log.util import random_id


def test_a_random_id_is_22_characters_of_base64url_for_16_bytes():
    drawn = [random_id() for _ in range(200)]
    assert len(set(drawn)) == 200
    assert {len(text) for text in drawn} == {22}
    assert {len(base64.urlsafe_b64decode(f"{text}==")) for text in drawn} == {16}


def test_no_random_id_begins_with_a_dash(monkeypatch):
    dashed = uuid.UUID(bytes=b"\xf8" + bytes(15))
    plain = uuid.UUID(bytes=bytes(16))
    assert base64.urlsafe_b64encode(dashed.bytes).startswith(b"-")
    answers = iter([dashed, dashed, plain])
    monkeypatch.setattr(uuid, "uuid4", lambda: next(answers))
    assert random_id() == "A" * 22

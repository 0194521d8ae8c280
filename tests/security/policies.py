"""The policy files of ``conf/policies``, as tests apply them."""

import json
from pathlib import Path

import spark_log

POLICIES = Path(spark_log.__file__).parents[1] / "conf" / "policies"

ROLES = ("reader", "consumer", "writer", "admin")

ONLY_AWS = "NeverReplaceASegment"
"""A statement with a condition that the server of the tests does not know: ``s3:if-none-match``."""


def statements(role, bucket, prefix):
    """The statements of a role's policy for AWS, for a root with this prefix in a bucket."""
    text = (POLICIES / "aws" / f"{role}.json").read_text("utf-8")
    return json.loads(text.replace("BUCKET", bucket).replace("PREFIX", prefix))["Statement"]


def bucket_policy(rights):
    """A bucket policy of user → statements, without those that the tests' server does not know."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {**statement, "Sid": f"{statement['Sid']}{number}", "Principal": {"AWS": [user]}}
            for number, (user, found) in enumerate(rights.items())
            for statement in found
            if statement["Sid"] != ONLY_AWS
        ],
    }

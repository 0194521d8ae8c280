"""An S3 server with a user for each role, and a root that the admin has made."""

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest

from spark_log import Admin, Consumer, NewTopic, Producer
from spark_log.storage import open_store
from spark_log.testing.servers.s3_server import run_s3_server, versitygw_binary
from tests.cli.conftest import folder, shell
from tests.security.policies import ROLES, bucket_policy, statements

__all__ = ["folder", "shell"]


@dataclass
class S3Root:
    """A root in a bucket whose policy gives each role, and the user of that name, its rights."""

    url: str
    server_options: dict[str, Any] = field(repr=False)
    roles: dict[str, dict[str, Any]] = field(repr=False)
    client: Any

    @property
    def bucket(self):
        return self.url.split("/")[2]

    def statements(self, role):
        """The statements of a role's policy for this root."""
        return statements(role, self.bucket, "some/root")

    def set_rights(self, **others):
        """Give each role the rights of its policy, or others: role → statements."""
        rights = {role: self.statements(role) for role in ROLES} | others
        self.client.put_bucket_policy(Bucket=self.bucket, Policy=json.dumps(bucket_policy(rights)))

    def write_properties(self, path, role):
        """Write a properties file that gives commands the rights of a role."""
        options = [f"storage.{key}={value}" for key, value in self.roles[role].items()]
        path.write_text("\n".join([f"root={self.url}", *options]))

    def given(self, role):
        """Arguments of a client with the rights of a role."""
        return {"root": self.url, "storage_options": self.roles[role]}

    def admin(self, role="admin"):
        return Admin(**self.given(role))

    def producer(self, role, **config):
        return Producer(**self.given(role), **config)

    def consumer(self, role, *topics, **config):
        return Consumer(*topics, **self.given(role), auto_offset_reset="earliest", **config)

    def files(self):
        """Return all files of the root, by path, as the server's own user sees them."""
        store: Any = open_store(self.url, self.server_options)
        return {info.path: info for info in store._objects("", None)}  # noqa: SLF001 - all at once


@pytest.fixture(scope="session")
def s3_users():
    """A server with the four users, who have no rights yet."""
    if not versitygw_binary().exists():
        pytest.skip("moto knows neither users nor policies: make s3-server builds versitygw")
    with run_s3_server(users=True) as server:
        yield server, {role: server.create_user(role) for role in ROLES}


@pytest.fixture
def s3_root(s3_users):
    """A root with the topic ``t`` of one partition and three records."""
    return make_root(s3_users)


@pytest.fixture(scope="module")
def unchanged_root(s3_users):
    """A root as `s3_root`, for the tests of a module that change nothing in it."""
    return make_root(s3_users)


def make_root(s3_users):
    server, users = s3_users
    options = server.storage_options
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint_url,
        aws_access_key_id=options["key"],
        aws_secret_access_key=options["secret"],
        region_name=options["region"],
    )
    bucket = f"rights-{uuid.uuid4().hex[:20]}"
    client.create_bucket(Bucket=bucket)
    root = S3Root(f"s3://{bucket}/some/root", options, users, client)
    root.set_rights()
    with root.admin() as admin:
        admin.create_topics([NewTopic("t")])
    with root.producer("admin") as producer:
        for number in range(3):
            producer.send("t", b"%d" % number)
    return root

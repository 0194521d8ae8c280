"""The policies for clouds that the tests cannot reach name the same places as those for AWS."""

import json
import os
import re
import subprocess

import pytest

from tests.security.policies import POLICIES, ROLES, statements

TOPICS = "*.??????????????????????/*"


def places(role, action):
    """Where a role may do something, by its policy for AWS: patterns relative to the root."""
    return {
        resource.partition(":::b/p/")[2]
        for statement in statements(role, "b", "p")
        if statement["Effect"] == "Allow" and action in statement["Action"]
        for resource in statement["Resource"]
    }


def test_writers_and_consumers_have_no_place_in_common():
    writes = {role: places(role, "s3:PutObject") for role in ROLES}
    assert writes["reader"] == set()
    assert writes["consumer"].isdisjoint(writes["writer"])
    assert writes["admin"] == {"*"}
    assert TOPICS in writes["writer"]
    assert TOPICS not in places("writer", "s3:DeleteObject")


def test_google_gives_each_role_the_places_of_aws():
    policy = json.loads((POLICIES / "gcs" / "policy.json").read_text("utf-8"))
    found: dict[str, set[str]] = {}
    for binding in policy["bindings"]:
        if binding["role"] in ("roles/storage.objectUser", "roles/storage.objectCreator"):
            expression = binding["condition"]["expression"]
            prefixes = re.findall(r'(?<!!)resource\.name\.startsWith\("([^"]*)"\)', expression)
            assert prefixes
            for member in binding["members"]:
                found.setdefault(member, set()).update(
                    prefix.removeprefix("projects/_/buckets/BUCKET/objects/PREFIX/")
                    for prefix in prefixes
                )
    assert found["group:CONSUMERS"] == {
        place.removesuffix("*") for place in places("consumer", "s3:PutObject")
    }
    names = {place.removesuffix("*") for place in places("writer", "s3:PutObject")}
    topics = {name for name in names if "?" in name}
    assert found["group:WRITERS"] == names - topics | {"", "__witnesses/"}
    assert found["group:ADMINS"] == {""}
    assert "group:READERS" not in found


@pytest.mark.parametrize("role", ["consumer", "writer", "admin"])
def test_azure_gives_each_role_the_places_of_aws(role):
    text = (POLICIES / "azure" / f"{role}.condition").read_text("utf-8")
    assert text.count("(") == text.count(")")
    clauses = text.split("AND\n(\n (")
    for clause, action in zip(clauses, ("s3:PutObject", "s3:DeleteObject"), strict=False):
        given = {path.removeprefix("PREFIX/") for path in re.findall(r"StringLike '(.*)'", clause)}
        uploads = {place for place in places(role, action) if place.endswith(".tmp")}
        assert given == places(role, action) - uploads
    assert (len(clauses) == 2) == (role == "writer"), "others may delete where they write"


def test_the_script_for_azure_assigns_each_role(tmp_path):
    az = tmp_path / "az"
    az.write_text('#!/bin/sh\necho "$@" >>"$CALLS"\n')
    az.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(tmp_path / "calls")}
    script = str(POLICIES / "azure" / "assign.sh")
    subprocess.run(["sh", script, "/scope", *ROLES], check=True, env=environment)
    calls = (tmp_path / "calls").read_text()
    assert re.findall(r"--assignee-object-id (\w+)", calls) == list(ROLES)
    assert "blobs/delete" in calls
    assert subprocess.run(["sh", script], check=False, capture_output=True).returncode == 2


def test_the_tests_that_the_page_on_security_names_exist():
    project = POLICIES.parent.parent
    text = (project / "docs" / "security.md").read_text("utf-8")
    named = set(re.findall(r"`([\w/]*test_\w+\.py)(?:::(\w+))?`", text))
    assert len(named) > 15
    for file, test in named:
        path = project / (file if "/" in file else f"tests/security/{file}")
        assert f"def {test}" in path.read_text("utf-8"), (file, test)

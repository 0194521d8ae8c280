"""``spark-log doctor``: lines for people, JSON and an exit status for probes, and its page."""

import re

import pytest

from spark_log import Admin, OffsetAndMetadata, TopicPartition
from spark_log.doctor import CHECKS, OWN_PROBLEMS, Severity
from tests.cli.support import append
from tests.docs.blocks import PROJECT, block

F0 = TopicPartition("flights", 0)


@pytest.fixture
def ill_root(root):
    """The root of the page: records were deleted before group ``reports`` read them."""
    append(root, "flights", b"1")
    append(root, "flights", b"2", b"3")
    Admin(root).alter_group_offsets("reports", {F0: OffsetAndMetadata(1)})
    Admin(root).delete_records({F0: 2})
    return root


def test_a_healthy_root(shell, root):
    outcome = shell("doctor", "--probe-storage")
    assert (outcome.status, outcome.out) == (0, "15 checks done, 3 partitions: healthy.\n")
    assert outcome.err.splitlines() == [
        "not checked: quorum: the cluster root is a single root",
        "not checked: gateways: no gateway is registered",
    ]


def test_the_example_of_the_page(shell, ill_root):
    command = block("docs/doctor.md", "spark-log doctor\n")
    outcome = shell(*command.split()[1:])
    assert outcome.out == block("docs/doctor.md", "[offset-before-start;")
    assert outcome.status == 1


def test_json_has_what_the_page_says(shell, ill_root):
    outcome = shell("doctor", "--json")
    assert outcome.status == 1
    document = outcome.document
    page = (PROJECT / "docs/doctor.md").read_text("utf-8").partition("\n## JSON\n")[2]
    members = [
        name
        for line in page.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    ]
    assert list(document) == members
    (finding,) = document["findings"]
    row = page.partition("| `findings` |")[2].partition("\n")[0]
    members = [each for each in re.findall(r"`(\w+)`", row) if each not in set(Severity)]
    assert list(finding) == members
    assert (finding["code"], finding["severity"]) == ("offset-before-start", "warning")
    assert (finding["topic"], finding["partition"], finding["group"]) == ("flights", 0, "reports")
    assert (document["status"], document["exit_status"]) == ("warnings", 1)
    assert (document["errors"], document["warnings"], document["infos"]) == (0, 1, 0)
    states = {each["name"]: each["status"] for each in document["checks"]}
    assert states == {each.name: "done" for each in CHECKS} | dict.fromkeys(
        ("gateways", "quorum", "storage"), "skipped"
    )
    assert document["examined_at_clock"] == "this machine"


def test_errors_have_status_2_and_come_first(shell, ill_root):
    Admin(ill_root).alter_group_offsets("ahead", {F0: OffsetAndMetadata(7)})
    outcome = shell("doctor")
    assert outcome.status == 2
    assert [line.partition(":")[0] for line in outcome.lines[:-1]] == ["error", "warning"]
    assert outcome.lines[-1] == "14 checks done, 3 partitions: 1 error, 1 warning."


def test_commands_name_the_root_that_was_given(shell, ill_root, monkeypatch):
    monkeypatch.delenv("SPARK_LOG_ROOT")
    (finding,) = shell("doctor", "--root", ill_root, "--json").document["findings"]
    assert finding["command"].endswith(f"--to-earliest --root {ill_root}")
    assert shell(*finding["command"].split()[1:]).status == 0


def test_only_some_checks(shell, ill_root):
    assert shell("doctor", "--checks", "brokers,clocks").out == (
        "2 checks done, 0 partitions: healthy.\n"
    )
    assert shell("doctor", "--group", "others", "--checks", "groups").status == 0
    assert shell("doctor", "--topic", "weather").out.endswith(" 1 partition: healthy.\n")
    assert shell("doctor", "--checks", "brokrs").error == (
        "there is no check 'brokrs'; did you mean brokers?"
    )
    assert shell("doctor", "--topic", "flihgts").status == 2


def test_a_root_that_is_not_there_is_a_mistake_and_damage_is_a_finding(shell, root, tmp_path):
    outcome = shell("doctor", "--root", tmp_path / "nowhere", "--json")
    assert (outcome.status, outcome.out) == (2, "")
    for path in root.glob("__cluster_metadata-0/*.log"):
        path.unlink()
    outcome = shell("doctor", "--json")
    assert outcome.status == 2
    assert [each["code"] for each in outcome.document["findings"]] == ["root-unreadable"]


def test_the_checks_are_listed_without_a_root_and_on_the_page(shell, folder):
    listed = shell("doctor", "--list-checks", "--json").document
    codes = {each["code"] for check in listed["checks"] for each in check["problems"]}
    codes |= {each["code"] for each in listed["always"]}
    text = shell("doctor", "--list-checks").out
    page = (PROJECT / "docs/doctor.md").read_text("utf-8")
    for check in CHECKS:
        assert f"\n{check.name}: {check.title}\n" in f"\n{text}"
        for problem in check.problems:
            row = f"| `{check.name}` | `{problem.code}` | {problem.severity} | {problem.meaning} |"
            assert row in page
    for problem in OWN_PROBLEMS:
        assert f"| always | `{problem.code}` | {problem.severity} | {problem.meaning} |" in page
    assert len(codes) == len({p.code for c in CHECKS for p in c.problems}) + len(OWN_PROBLEMS)

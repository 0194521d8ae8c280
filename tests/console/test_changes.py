"""Changes: only with --allow-changes, the token, a session, and a form of this console."""

import re

import pytest

from spark_log import Admin, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator.group.coordinator import GroupCoordinator
from tests.console.conftest import TOKEN, get

FLIGHTS = TopicPartition("flights", 0)


def committed(root):
    return Admin(root).list_group_offsets("reports")[FLIGHTS].offset


def sign_in(client):
    answer = client.post("/sign-in", data={"token": TOKEN})
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    page = client.get("/group/reset?group=reports").text
    return re.findall(r'name="csrf" value="([0-9a-f]{64})"', page)[0]


@pytest.fixture
def writer(own_root, clients):
    return clients(own_root, token=TOKEN)


def reset(client, **form):
    return client.post("/group/reset", data={"group": "reports", **form})


class TestReadOnly:
    def test_is_the_default(self, own_root, clients):
        client = clients(own_root)
        assert client.post("/sign-in", data={"token": ""}).status_code == 403
        assert reset(client, to="earliest", execute="true").status_code == 403
        headers = {"authorization": f"Bearer {TOKEN}"}
        body = {"group": "reports", "to": "earliest", "execute": True}
        answer = client.post("/api/group/reset", json=body, headers=headers)
        assert answer.status_code == 403
        assert "--allow-changes" in answer.json()["error"]
        assert committed(own_root) == 4

    def test_answers_set_no_cookie(self, own_root, clients):
        assert "set-cookie" not in clients(own_root).get("/").headers


class TestForms:
    def test_a_dry_run_is_shown_first_and_exactly_it_is_committed(self, writer, own_root):
        csrf = sign_in(writer)
        page = reset(writer, csrf=csrf, to="latest").text
        assert "Dry run" in page
        assert committed(own_root) == 4
        (planned,) = re.findall(r'name="planned" value="([^"]*)"', page)
        assert planned == "flights,0,10"
        page = reset(writer, csrf=csrf, planned=planned, execute="true").text
        assert "Dry run" not in page
        assert committed(own_root) == 10

    @pytest.mark.parametrize(
        ("to", "value", "expected"),
        [("earliest", "", 0), ("offset", "7", 7), ("shift", "-3", 1), ("offset", "99", 10)],
    )
    def test_ways(self, writer, own_root, to, value, expected):
        reset(writer, csrf=sign_in(writer), to=to, value=value, execute="true")
        assert committed(own_root) == expected

    def test_without_a_session_nothing_changes(self, writer, own_root):
        assert reset(writer, to="earliest", execute="true").status_code == 401
        assert committed(own_root) == 4

    @pytest.mark.parametrize("csrf", ["", "0" * 64, "é"])
    def test_a_form_of_somebody_else_changes_nothing(self, writer, own_root, csrf):
        sign_in(writer)
        assert reset(writer, csrf=csrf, to="earliest", execute="true").status_code == 403
        assert committed(own_root) == 4

    def test_the_form_of_another_session_changes_nothing(self, writer, own_root):
        other = sign_in(writer)
        writer.cookies.clear()
        sign_in(writer)
        assert reset(writer, csrf=other, to="earliest", execute="true").status_code == 403
        assert committed(own_root) == 4

    def test_after_signing_out_nothing_changes(self, writer, own_root):
        csrf = sign_in(writer)
        session = dict(writer.cookies)
        assert writer.post("/sign-out", data={"csrf": csrf}).status_code == 303
        writer.cookies.update(session)
        assert reset(writer, csrf=csrf, to="earliest", execute="true").status_code == 401
        assert committed(own_root) == 4

    def test_a_group_with_members_is_left_alone(self, writer, own_root):
        GroupCoordinator(Cluster(own_root), "reports").join(["flights"], client_id="c")
        answer = reset(writer, csrf=sign_in(writer), to="earliest", execute="true")
        assert answer.status_code == 409
        assert committed(own_root) == 4

    def test_json_and_files_are_no_forms(self, writer):
        answer = writer.post("/group/reset", json={"group": "reports"})
        assert answer.status_code == 415

    def test_a_large_form_is_refused(self, writer):
        assert writer.post("/sign-in", data={"token": "x" * 3_000_000}).status_code == 413


class TestToken:
    def test_a_wrong_one_opens_no_session_and_many_close_the_door(self, writer):
        for _ in range(20):
            answer = writer.post("/sign-in", data={"token": "wrong"})
            assert answer.status_code == 401
            assert "set-cookie" not in answer.headers
        assert writer.post("/sign-in", data={"token": TOKEN}).status_code == 403

    def test_stands_in_no_page_and_no_repr(self, writer, own_root):
        sign_in(writer)
        for path in ("/", "/group/reset?group=reports", "/api/openapi.json", "/sign-in"):
            assert TOKEN not in writer.get(path).text


class TestApi:
    def test_takes_the_token_itself(self, writer, own_root):
        headers = {"authorization": f"Bearer {TOKEN}"}
        body = {"group": "reports", "topic": "flights", "to": "latest"}
        plan = writer.post("/api/group/reset", json=body, headers=headers).json()
        assert plan == {
            "group_id": "reports",
            "executed": False,
            "offsets": [
                {"topic": "flights", "partition": 0, "current_offset": 4, "new_offset": 10}
            ],
            "notes": [],
        }
        assert committed(own_root) == 4
        body = {**body, "execute": "true"}
        assert writer.post("/api/group/reset", json=body, headers=headers).json()["executed"]
        assert committed(own_root) == 10

    @pytest.mark.parametrize("header", [None, "Bearer wrong", f"Basic {TOKEN}"])
    def test_takes_no_cookie_and_no_other_token(self, writer, own_root, header):
        sign_in(writer)
        headers = {"authorization": header} if header else {}
        body = {"group": "reports", "to": "latest", "execute": True}
        assert writer.post("/api/group/reset", json=body, headers=headers).status_code == 401
        assert committed(own_root) == 4

    def test_stands_in_the_document(self, writer):
        document = writer.get("/api/openapi.json").json()
        assert "post" in document["paths"]["/api/group/reset"]
        assert get(writer, "/topics")["total"] == 1

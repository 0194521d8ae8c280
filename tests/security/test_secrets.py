"""Secrets are nowhere but where their user has put them."""

import logging
import subprocess
from pathlib import Path

import pytest

from spark_log import Admin, Consumer, NewTopic, Producer
from spark_log.errors import AuthorizationError, SparkLogError
from spark_log.storage import open_store
from spark_log.testing.servers.s3_server import run_s3_server, versitygw_binary
from tests.cli.support import COMMAND, environment

SECRET = "secret-of-spy"


@pytest.fixture
def no_secret(caplog, capfd):
    """Records all that is logged, at the lowest level, and printed, to look for a secret in it."""
    caplog.set_level(logging.DEBUG)

    def check(secret, *more):
        printed = capfd.readouterr()
        for text in (caplog.text, printed.out, printed.err, *more):
            assert secret not in text

    return check


def use_everything(url, options):
    """Write, read, commit and describe; return what public objects print of themselves."""
    given = {"root": url, "storage_options": options}
    with Admin(**given) as admin:
        admin.create_topics([NewTopic("t")])
        with Producer(**given, transactional_id="tx") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"value").get(60)
            producer.commit_transaction()
        with Consumer("t", **given, group_id="g", auto_offset_reset="earliest") as consumer:
            assert consumer.poll(60_000)
            consumer.commit()
        told = [admin.describe_groups(["g"]), admin.describe_topics(["t"]), producer.metrics()]
        clients = [admin, producer, consumer, open_store(url, options)]
        return [repr(each) for each in (*told, *clients)]


def test_a_session_leaves_no_secret_in_the_root_or_in_what_is_printed(tmp_path, no_secret):
    if not versitygw_binary().exists():
        pytest.skip("make s3-server builds the server whose directory is searched")
    with run_s3_server(directory=tmp_path) as server:
        (tmp_path / "bucket").mkdir()
        options = {**server.storage_options}
        secret = options["secret"]
        printed = use_everything("s3://bucket/root", options)
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert len(files) > 10
        for path in files:
            assert secret.encode() not in path.read_bytes(), path
        no_secret(secret, *printed)


def test_an_error_tells_no_secret(s3_users, no_secret):
    server, _ = s3_users
    url = server.new_bucket()
    wrong = {**server.storage_options, "secret": SECRET}
    errors = []
    for options in (wrong, {**wrong, "key": "nobody"}, {**wrong, "token": SECRET}):
        with pytest.raises(SparkLogError) as caught:
            Admin(url, storage_options=options).list_topics()
        errors += [str(caught.value), repr(caught.value), repr(vars(caught.value))]
        errors += [repr(caught.value.__cause__), repr(caught.value.__context__)]
    with pytest.raises(AuthorizationError):
        open_store(url, wrong).open_buffer("x")
    no_secret(SECRET, *errors)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("topics list --root {root} --storage-option secret=S", "--storage-option secret in the"),
        (
            "mirror from-root --root {root} --source {root} --source-storage-option token=S",
            "--source-storage-option token in the",
        ),
        (
            "mirror from-kafka --root {root} --bootstrap-server localhost:1 --topics [ "
            "--kafka-property sasl.password=S",
            "--kafka-property sasl.password in the",
        ),
    ],
)
def test_a_secret_on_the_command_line_gets_a_warning(shell, folder, tmp_path, line, said):
    Admin(tmp_path / "root").create_topics([NewTopic("t")])
    line = line.format(root=tmp_path / "root").replace("=S", f"={SECRET}")
    outcome = shell(*line.split())
    assert f"warning: every user of this machine sees the value of {said}" in outcome.err
    assert SECRET not in outcome.err + outcome.out


def test_options_that_are_no_secrets_get_no_warning(shell, folder, tmp_path):
    Admin(tmp_path / "root").create_topics([NewTopic("t")])
    outcome = shell("topics", "list", "--root", tmp_path / "root", "--storage-option", "region=x")
    assert (outcome.status, outcome.err) == (0, "")


def test_passwords_of_kafka_come_from_a_file(shell, folder, tmp_path):
    pytest.importorskip("confluent_kafka")
    Admin(tmp_path / "root").create_topics([])
    file = folder / "kafka.properties"
    file.write_text(f"# of the bridge\nbootstrap.servers=localhost:1\nsasl.pasword={SECRET}\n")
    line = ["mirror", "from-kafka", "--root", tmp_path / "root", "--kafka-config", file]
    outcome = shell(*line)
    assert outcome.status == 2
    assert "sasl.pasword" in outcome.error, "librdkafka has read the file"
    assert SECRET not in outcome.err
    file.write_text(f"{SECRET}\n")
    assert shell(*line).error == f"{file} takes KEY=VALUE, got something else"
    assert "cannot read" in shell(*line[:-1], folder / "missing").error


def test_the_list_of_processes_shows_no_secret_of_a_file_or_of_the_environment(tmp_path):
    Admin(tmp_path / "root").create_topics([NewTopic("t")])
    file = tmp_path / "spark-log.properties"
    file.write_text(f"root={tmp_path / 'root'}\nstorage.secret={SECRET}\n")
    process = subprocess.Popen(
        [*COMMAND, "console-producer", "t", "--config", str(file)],
        env=environment(AWS_SECRET_ACCESS_KEY=SECRET),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    arguments = Path(f"/proc/{process.pid}/cmdline")
    while not (command := arguments.read_bytes()):  # until the kernel has set them, within exec
        assert process.poll() is None
    _, err = process.communicate(b"a line\n", timeout=300)
    assert process.returncode == 0, err
    assert b"console-producer" in command
    assert SECRET.encode() not in command + err

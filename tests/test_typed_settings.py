"""The clients' typed keyword arguments: they are the table of keys, and type checkers use them."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from spark_log import (
    Admin,
    AIOConsumer,
    AIOProducer,
    Consumer,
    InvalidConfigurationError,
    Producer,
    SparkLogError,
)
from spark_log.config import settings
from spark_log.config.typed_dicts import CLIENTS, typed_dicts

PROJECT = Path(__file__).parent.parent

KEYS = [
    (model, name, hint)
    for model in CLIENTS
    for name, hint in get_type_hints(getattr(settings, f"{model.title}Settings")).items()
]


VALUES: dict[object, list[object]] = {
    int: [1],
    bool: [True, False],
    str: ["earliest"],
    type(None): [None],
}


def values_of(hint: object) -> list[object]:
    """Return a value of each kind that a type hint allows."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    if "Sequence" in str(hint):
        names = get_args(get_args(get_args(hint)[1])[0])
        return [list(names), tuple(names), ",".join(names)]
    if get_args(hint):  # a union
        return [value for each in get_args(hint) for value in values_of(each)]
    return VALUES[hint]


def test_the_module_is_what_the_models_say():
    assert (PROJECT / "spark_log/config/settings.py").read_text("utf-8") == typed_dicts()


@pytest.mark.parametrize("model", CLIENTS, ids=lambda model: model.title)
def test_every_key_of_a_client_is_a_keyword(model):
    names = {name for owner, name, _ in KEYS if owner is model}
    assert {model.key_name(name) for name in names} == set(model.keys())


@pytest.mark.parametrize(("model", "name", "hint"), KEYS, ids=lambda part: str(part)[:40])
def test_a_value_of_the_type_is_accepted_and_one_of_another_type_is_not(model, name, hint):
    for value in values_of(hint):
        model.parse({name: value})
    with pytest.raises(InvalidConfigurationError):
        model.parse({name: [object()]})


@pytest.mark.parametrize(
    ("wrapper", "client"), [(AIOProducer, Producer), (AIOConsumer, Consumer)], ids=["p", "c"]
)
def test_an_asyncio_client_shows_the_arguments_of_the_client_that_it_runs(wrapper, client):
    assert inspect.signature(wrapper) == inspect.signature(client)


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_keys_are_the_keyword_arguments_of_a_client(client):
    config = inspect.signature(client).parameters["config"]
    assert config.annotation == f"Unpack[{client.__name__}Settings]"


def test_dotted_keys_are_taken_from_a_dict(tmp_path):
    conf: dict[str, Any] = {"request.timeout.ms": 5}
    assert Admin(tmp_path, **conf).config.request_timeout_ms == 5
    with pytest.raises(SparkLogError, match=r"did you mean 'linger\.ms'"):
        Producer(tmp_path, **dict[str, Any]({"lingr.ms": 5}))


def test_a_client_does_not_import_the_typed_settings():
    code = (
        "import sys, spark_log; spark_log.Producer, spark_log.AIOConsumer, spark_log.Admin; "
        "print('spark_log.config.settings' in sys.modules, 'spark_log.config.typed_dicts' in "
        "sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.long
def test_mypy_checks_the_keyword_arguments_of_every_client(tmp_path):
    good = tmp_path / "good.py"
    good.write_text(
        "from typing import Any\n"
        "from spark_log import Admin, AIOConsumer, AIOProducer, Consumer, Producer\n"
        "Producer('r', linger_ms=5, acks=1, compression_type=None)\n"
        "Consumer('t', root='r', group_id='g', partition_assignment_strategy=['sticky'])\n"
        "Admin('r', request_timeout_ms=5)\n"
        "AIOProducer('r', linger_ms=5)\n"
        "AIOConsumer('t', root='r', enable_auto_commit=False)\n"
        "dotted: dict[str, Any] = {'linger.ms': 5}\n"
        "Producer('r', **dotted)\n"
        "from typing import Unpack\n"
        "from spark_log.config.settings import ProducerSettings\n"
        "def patient(**settings: Unpack[ProducerSettings]) -> Producer:\n"
        "    return Producer('r', **settings)\n"
    )
    bad = tmp_path / "bad.py"
    bad.write_text(
        "from spark_log import Admin, AIOConsumer, AIOProducer, Consumer, Producer\n"
        "Producer('r', lingr_ms=5)\n"
        "Producer('r', acks='both')\n"
        "Consumer('t', root='r', partition_assignment_strategy=['nearest'])\n"
        "Admin('r', request_timeout_ms='5')\n"
        "AIOProducer('r', lingr_ms=5)\n"
        "AIOConsumer('t', root='r', enable_auto_commit='no')\n"
    )
    done = subprocess.run(
        [Path(sys.executable).with_name("mypy"), "--no-error-summary", good, bad],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.split(":")[1] for line in errors] == ["2", "3", "4", "5", "6", "7"], done.stdout
    assert all(str(bad.name) in line for line in errors)

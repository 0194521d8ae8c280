"""``KEY=VALUE`` arguments."""

from dataclasses import dataclass

import pytest

from spark_log.cli.options.properties import parse_pairs, warn_of_secrets, with_properties
from spark_log.errors import InvalidConfigurationError


@dataclass(frozen=True)
class Settings:
    print_key: bool = False
    key_separator: str = "\t"


def test_pairs_are_cut_at_the_first_equals_sign():
    assert parse_pairs("--config", ["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}


def test_of_a_key_that_comes_twice_the_last_counts():
    assert parse_pairs("--config", ["a=1", "a=2"]) == {"a": "2"}


@pytest.mark.parametrize("pair", ["a", "=1", "", "  =1"])
def test_what_is_no_pair_is_refused(pair):
    with pytest.raises(InvalidConfigurationError, match="--config takes KEY=VALUE"):
        parse_pairs("--config", [pair])


def test_a_key_is_a_secret_and_the_path_of_its_file_is_none(capsys):
    warn_of_secrets("--override", ["ssl.keystore.location", "ssl.key.location"], "")
    assert capsys.readouterr().err == ""
    for secret in ("ssl.key.password", "ssl.keystore.key", "ssl.key.pem", "account_key"):
        warn_of_secrets("--override", [secret], "")
        assert f"the value of --override {secret} in the list" in capsys.readouterr().err


def test_properties_change_the_field_of_their_name():
    settings = with_properties(Settings(), ["print.key=True", "key.separator= = "])
    assert settings == Settings(print_key=True, key_separator=" = ")


def test_an_unknown_property_names_the_nearest():
    with pytest.raises(InvalidConfigurationError, match=r"did you mean 'print\.key'") as caught:
        with_properties(Settings(), ["print.kye=true"])
    assert (caught.value.key, caught.value.nearest) == ("print.kye", "print.key")


def test_a_property_like_no_other_names_all():
    with pytest.raises(
        InvalidConfigurationError, match=r"known properties: print\.key, key\.separator"
    ):
        with_properties(Settings(), ["zzz=true"])


def test_yes_and_no_are_true_and_false():
    with pytest.raises(InvalidConfigurationError, match="'yes', expected true or false"):
        with_properties(Settings(), ["print.key=yes"])

"""Translation of fsspec's URLs and options into those of obstore and deltalake."""

import json

import pytest

import spark_log.storage.object
from spark_log.errors import InvalidConfigurationError, InvalidRootError
from spark_log.storage import open_store
from spark_log.storage.object.location import ObjectLocation


@pytest.fixture(autouse=True)
def no_endpoint_of_the_environment(monkeypatch):
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)


class TestUrls:
    @pytest.mark.parametrize(
        ("url", "service", "bucket", "prefix"),
        [
            ("s3://bucket/a/root", "s3", "bucket", "a/root"),
            ("s3a://bucket", "s3", "bucket", ""),
            ("s3://bucket//a//root/", "s3", "bucket", "a/root"),
            ("gs://bucket/root", "gcs", "bucket", "root"),
            ("gcs://bucket/root", "gcs", "bucket", "root"),
            ("az://container/root", "azure", "container", "root"),
            ("abfs://container@acc.dfs.core.windows.net/root", "azure", "container", "root"),
            ("abfss://container@acc.dfs.core.windows.net", "azure", "container", ""),
        ],
    )
    def test_a_url_names_service_bucket_and_prefix(self, url, service, bucket, prefix):
        location = ObjectLocation.parse(url)
        assert (location.service, location.bucket, location.prefix) == (service, bucket, prefix)

    def test_the_account_may_stand_in_the_url(self):
        location = ObjectLocation.parse("abfs://c@acc.dfs.core.windows.net/root")
        assert location.config["account_name"] == "acc"
        assert location.url == "abfs://c@acc.dfs.core.windows.net/root"

    def test_a_store_keeps_the_url_as_it_was_written_without_a_slash_at_its_end(self):
        assert open_store("s3://bucket/root/").url == "s3://bucket/root"
        assert open_store("s3://bucket/").url == "s3://bucket"

    @pytest.mark.parametrize("url", ["s3://", "s3:///root", "gs://", "az://"])
    def test_a_url_without_a_bucket_is_refused(self, url):
        with pytest.raises(InvalidRootError, match="names no bucket"):
            open_store(url)

    @pytest.mark.parametrize(
        "url",
        [
            "s3://key:pa55word@bucket/root",
            "gs://pa55word@bucket/root",
            "az://container/root?sig=pa55word",
        ],
    )
    def test_a_url_with_credentials_is_refused_and_not_shown(self, url):
        with pytest.raises(InvalidRootError) as caught:
            open_store(url)
        assert "pa55word" not in f"{caught.value!r} {vars(caught.value)}"

    @pytest.mark.parametrize("path", ["a/../b", "./a", ".."])
    def test_a_prefix_has_no_dots_for_parts(self, path):
        with pytest.raises(InvalidRootError):
            open_store(f"s3://bucket/{path}")


class TestS3Options:
    def test_keys_and_endpoint_may_be_given_flat_or_for_the_client(self):
        flat = {"key": "k", "secret": "s", "token": "t", "region": "eu-west-1"}
        client = {
            "aws_access_key_id": "k",
            "aws_secret_access_key": "s",
            "aws_session_token": "t",
            "region_name": "eu-west-1",
            "endpoint_url": "https://host:1",
        }
        expected = {
            "access_key_id": "k",
            "secret_access_key": "s",
            "session_token": "t",
            "region": "eu-west-1",
            "endpoint": "https://host:1",
        }
        for options in (
            {**flat, "endpoint_url": "https://host:1"},
            {"client_kwargs": client},
            {"client_kwargs": json.dumps(client)},
        ):
            location = ObjectLocation.parse("s3://bucket", options)
            assert location.config == expected
            assert not location.allow_http

    @pytest.mark.parametrize("given", [True, "true", "True"])
    def test_a_flag_may_be_a_boolean_or_its_name(self, given):
        options = {"anon": given, "requester_pays": given}
        config = ObjectLocation.parse("s3://bucket", options).config
        assert config == {"skip_signature": True, "request_payer": True}
        assert ObjectLocation.parse("s3://bucket", {"anon": "false"}).config == {}

    def test_plain_http_takes_an_endpoint_that_says_so(self, monkeypatch):
        def allows(options):
            return ObjectLocation.parse("s3://bucket", options).allow_http

        assert not allows({})
        assert allows({"endpoint_url": "http://127.0.0.1:9000"})
        assert allows({"use_ssl": "false"})
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
        assert allows({})
        assert not allows({"endpoint_url": "https://host"})

    def test_other_options_of_s3fs_are_translated(self):
        location = ObjectLocation.parse(
            "s3://bucket",
            {
                "client_kwargs": {"verify": False},
                "config_kwargs": {"s3": {"addressing_style": "virtual"}},
                "s3_additional_kwargs": {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "id"},
            },
        )
        assert not location.verify_tls
        assert location.config == {
            "virtual_hosted_style_request": True,
            "server_side_encryption": "aws:kms",
            "sse_kms_key_id": "id",
        }

    @pytest.mark.parametrize(
        ("options", "key", "near"),
        [
            ({"secrt": "pa55word"}, "secrt", "secret"),
            ({"client_kwargs": {"endpoint": "pa55word"}}, "client_kwargs.endpoint", None),
            ({"account_key": "pa55word"}, "account_key", None),
            ({"config_kwargs": {"s3": {"pa": "pa55word"}}}, "config_kwargs.s3.pa", None),
        ],
    )
    def test_an_unknown_option_is_named_and_its_value_is_not(self, options, key, near):
        with pytest.raises(InvalidConfigurationError, match="unknown storage option") as caught:
            open_store("s3://bucket", options)
        assert caught.value.key == key
        if near:
            assert caught.value.nearest == near
        assert "pa55word" not in f"{caught.value!r} {vars(caught.value)}"

    @pytest.mark.parametrize("options", [{"anon": "pa55"}, {"client_kwargs": "pa55"}])
    def test_a_value_of_the_wrong_kind_is_not_shown(self, options):
        with pytest.raises(InvalidConfigurationError, match="is not") as caught:
            open_store("s3://bucket", options)
        assert "pa55" not in f"{caught.value!r} {vars(caught.value)}"


class TestGcsOptions:
    def test_the_token_is_a_file_or_a_key_or_a_word(self, tmp_path):
        def config(token):
            return ObjectLocation.parse("gs://bucket", {"token": token, "project": "p"}).config

        assert config(str(tmp_path / "key.json")) == {
            "application_credentials": str(tmp_path / "key.json")
        }
        key = {"type": "service_account", "client_email": "a@b"}
        for given in (key, json.dumps(key)):
            assert json.loads(config(given)["service_account_key"]) == key
        assert json.loads(config("anon")["service_account_key"])["disable_oauth"] is True
        for word in (None, "google_default", "cloud"):
            assert config(word) == {}

    def test_an_endpoint_may_be_given(self):
        location = ObjectLocation.parse("gs://bucket", {"endpoint_url": "http://127.0.0.1:1"})
        assert location.config == {"base_url": "http://127.0.0.1:1"}
        assert location.allow_http


class TestAzureOptions:
    def test_a_connection_string_is_taken_apart(self):
        text = "AccountName=acc;AccountKey=a2V5PT0=;BlobEndpoint=http://127.0.0.1:1/acc;"
        location = ObjectLocation.parse("az://container", {"connection_string": text})
        assert location.config == {
            "account_name": "acc",
            "account_key": "a2V5PT0=",
            "endpoint": "http://127.0.0.1:1/acc",
        }
        assert location.allow_http

    def test_other_credentials_are_translated(self):
        names = ["account_name", "tenant_id", "client_id", "client_secret"]
        options = {name: name.upper() for name in names} | {"sas_token": "?sig=1", "anon": "true"}
        assert ObjectLocation.parse("az://container", options).config == {
            **{name: name.upper() for name in names},
            "sas_key": "?sig=1",
            "skip_signature": True,
        }


class TestDelta:
    def test_deltalake_gets_the_same_location_and_credentials(self):
        options = {"key": "k", "secret": "s", "endpoint_url": "http://127.0.0.1:1", "anon": True}
        location = ObjectLocation.parse("s3a://bucket/root", options)
        assert location.delta_url("offsets") == "s3://bucket/root/offsets"
        assert location.delta_options() == {
            "aws_access_key_id": "k",
            "aws_secret_access_key": "s",
            "aws_endpoint": "http://127.0.0.1:1",
            "aws_skip_signature": "true",
            "aws_conditional_put": "etag",
            "allow_http": "true",
        }

    def test_deltalake_gets_its_own_url_schemes(self):
        assert ObjectLocation.parse("gcs://bucket").delta_url("d") == "gs://bucket/d"
        abfs = ObjectLocation.parse("abfs://c@acc.dfs.core.windows.net/root", {"account_key": "k"})
        assert abfs.delta_url("d") == "az://c/root/d"
        assert abfs.delta_options() == {
            "azure_storage_account_name": "acc",
            "azure_storage_account_key": "k",
        }

    def test_a_repr_does_not_show_the_options(self):
        location = ObjectLocation.parse("s3://bucket", {"secret": "pa55word"})
        assert "pa55word" not in repr(location)


def test_without_obstore_the_extra_is_named(monkeypatch):
    import sys

    from spark_log.errors import UnsupportedStoreError

    monkeypatch.setitem(sys.modules, "spark_log.storage.object.object_store", None)
    monkeypatch.delitem(vars(spark_log.storage.object), "ObjectStore", raising=False)
    with pytest.raises(UnsupportedStoreError, match=r"pip install 'spark-log\[gcs\]'"):
        open_store("gs://bucket")


OPTIONS = {"key": "a-key", "secret": "a-secret", "token": "a-token", "region": "us-east-1"}


class TestForbiddenCharacters:
    @pytest.mark.parametrize("name", OPTIONS)
    @pytest.mark.parametrize(
        ("end", "what"),
        [("\n", "a newline at its end"), ("\r\n", "a carriage return"), ("é", "not ASCII")],
    )
    def test_the_error_names_the_option_and_hides_the_value(self, name, end, what):
        options = {**OPTIONS, name: OPTIONS[name] + end}
        with pytest.raises(InvalidConfigurationError, match=what) as told:
            ObjectLocation.parse("s3://bucket", options)
        assert told.value.key == name
        assert f"{name!r}" in str(told.value)
        assert not any(value in str(told.value) for value in OPTIONS.values())

    @pytest.mark.parametrize(
        ("url", "options", "key"),
        [
            ("s3://b", {"client_kwargs": {"region_name": "us\n"}}, "client_kwargs.region_name"),
            ("s3://b", {"endpoint_url": "http://127.0.0.1:1\n"}, "endpoint_url"),
            ("az://b", {"account_key": "abc\n"}, "account_key"),
            ("az://b", {"connection_string": "AccountKey=a\n"}, "connection_string.AccountKey"),
        ],
    )
    def test_every_option_is_checked(self, url, options, key):
        with pytest.raises(InvalidConfigurationError, match="newline") as told:
            ObjectLocation.parse(url, options)
        assert told.value.key == key

    def test_environment_variables_are_checked(self, monkeypatch):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a-key\n")
        with pytest.raises(InvalidConfigurationError, match="AWS_ACCESS_KEY_ID") as told:
            ObjectLocation.parse("s3://bucket")
        assert "a-key" not in str(told.value)
        assert ObjectLocation.parse("s3://bucket", OPTIONS).bucket == "bucket"

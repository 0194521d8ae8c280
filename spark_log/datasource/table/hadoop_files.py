"""Paths and options of a store's files, as Spark's own readers name them (Hadoop)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_log.errors import UnsupportedStoreError
from spark_log.storage import Store

_S3_OPTIONS: Final = {
    "aws_access_key_id": "fs.s3a.access.key",
    "aws_secret_access_key": "fs.s3a.secret.key",
    "aws_session_token": "fs.s3a.session.token",
    "aws_endpoint": "fs.s3a.endpoint",
    "aws_region": "fs.s3a.endpoint.region",
}


def hadoop_directory(store: Store, directory: str) -> str:
    """Return the URL of a directory for Spark's readers.

    Args:
        store: the store that has the directory.
        directory: the directory's path, relative to the store's root.

    Raises:
        UnsupportedStoreError: only this process can read the store.
    """
    url = store.directory_url(directory)
    scheme, separator, rest = url.partition("://")
    if not separator:
        return f"file://{url}"
    if scheme == "s3":
        return f"s3a://{rest}"
    if scheme == "gs":
        return url
    if scheme == "az":
        container, _, path = rest.partition("/")
        return f"abfss://{container}@{_azure_host(store.delta_options())}/{path}"
    raise UnsupportedStoreError(
        f"Spark cannot read the files of {store.url} by itself; read the topic with "
        f'format("spark_log")',
        path=store.url,
    )


def hadoop_options(store: Store) -> dict[str, str]:
    """Return the options with which Spark's readers reach a store; they may have credentials.

    Without credentials in the storage options, Spark's own settings count.
    """
    known = store.delta_options()
    if any(key.startswith("aws_") for key in known):
        options = {name: known[key] for key, name in _S3_OPTIONS.items() if key in known}
        if "aws_endpoint" in known and known.get("aws_virtual_hosted_style_request") != "true":
            options["fs.s3a.path.style.access"] = "true"
        if "aws_session_token" in known:
            options["fs.s3a.aws.credentials.provider"] = (
                "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
            )
        if known.get("allow_http") == "true":
            options["fs.s3a.connection.ssl.enabled"] = "false"
        return options
    if "azure_storage_account_key" in known:
        host = _azure_host(known)
        return {f"fs.azure.account.key.{host}": known["azure_storage_account_key"]}
    if "google_application_credentials" in known:
        return {
            "google.cloud.auth.service.account.json.keyfile": known[
                "google_application_credentials"
            ]
        }
    return {}


def _azure_host(known: Mapping[str, str]) -> str:
    account = known.get("azure_storage_account_name", "")
    return f"{account}.dfs.core.windows.net"

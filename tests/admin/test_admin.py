"""`Admin` itself: opening, closing, remote roots."""

import subprocess
import sys
import threading

from spark_log import (
    Admin,
    NewTopic,
)
from spark_log.storage.local import LocalStore
from tests.metadata.support import append


class TestRemote:
    def test_many_partitions_are_looked_at_together_and_answered_in_order(
        self, admin, root, monkeypatch
    ):
        admin.create_topics([NewTopic("a", 40)])
        append(root, "a", 2, partition=7)
        barrier = threading.Barrier(2)
        first_two = iter([True, True])

        listing = LocalStore.list

        def slowly(store, directory, start_after=None):
            if "/a-" in directory and next(first_two, False):
                barrier.wait(timeout=60)  # nobody comes here alone
            return listing(store, directory, start_after)

        monkeypatch.setattr(LocalStore, "is_mapped", False)
        monkeypatch.setattr(LocalStore, "list", slowly)
        ends = [each.log_end_offset for each in admin.describe_topics()[0].partitions]
        assert ends == [2 if number == 7 else 0 for number in range(40)]


class TestClose:
    def test_a_closed_one_is_opened_again_by_its_next_use(self, root):
        with Admin(root) as admin:
            admin.create_topics([NewTopic("a")])
        assert admin.list_topics() == ["a"]


class TestRepr:
    def test_it_names_the_root_and_hides_credentials(self, root):
        assert repr(Admin(root)) == f"Admin(root={str(root)!r})"
        assert repr(Admin("s3://key:secret@bucket/log")) == "Admin(root='s3://bucket/log')"
        url = "abfs://container@account.dfs.core.windows.net/log"
        assert repr(Admin(url)) == f"Admin(root={url!r})"


def test_groups_alone_import_what_reads_parquet():
    """The import of pyarrow.parquet takes longer than most commands."""
    code = (
        "import sys, tempfile; from spark_log import Admin, NewTopic\n"
        "admin = Admin(tempfile.mkdtemp() + '/root')\n"
        "admin.create_topics([NewTopic('a')]); admin.describe_topics()\n"
        "admin.describe_configs([]); admin.list_offsets({})\n"
        "print(*{'pyarrow.parquet', 'deltalake'} & sys.modules.keys())\n"
        "admin.list_groups(); print('pyarrow.parquet' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.splitlines() == ["", "True"]

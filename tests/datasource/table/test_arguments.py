"""Arguments of `read_table` that are wrong before a session is needed."""

import pytest

from spark_log import read_table
from spark_log.errors import InvalidOptionError


@pytest.mark.parametrize("spark", [None, "local[1]", object()])
def test_what_is_no_session_is_one_error(tmp_path, spark):
    with pytest.raises(InvalidOptionError, match="give a SparkSession, such as that of spark_log"):
        read_table(spark, str(tmp_path), "t")

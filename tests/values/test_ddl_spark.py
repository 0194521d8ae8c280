"""Spark reads a DDL as the same schema as ours."""

import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_log.values.ddl import parse_ddl
from tests.values.schemas import ddl_of, schemas
from tests.values.test_ddl import ALL_TYPES

pytestmark = pytest.mark.spark


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schemas())
def test_spark_reads_any_ddl_as_the_same_schema(spark, schema):
    assert _of_spark(ddl_of(schema)).equals(parse_ddl(ddl_of(schema)))


def test_spark_reads_all_types(spark):
    assert _of_spark(ALL_TYPES).equals(parse_ddl(ALL_TYPES))


def _of_spark(text):
    schema = StructType.fromDDL(text)
    assert isinstance(schema, StructType)
    return to_arrow_schema(schema, timezone="UTC")

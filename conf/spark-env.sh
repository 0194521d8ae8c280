# Read with SPARK_CONF_DIR=conf. Sets the Python with which Spark looks up format("spark_log") and
# runs tasks. The default is the first python3 on the PATH. If the environment is not activated,
# that Python does not have spark-log, and Spark fails with DATA_SOURCE_NOT_FOUND.

if [ -z "$PYSPARK_PYTHON" ] && [ -x "$SPARK_CONF_DIR/../.venv/bin/python" ]; then
    PYSPARK_PYTHON=$(cd "$SPARK_CONF_DIR/../.venv/bin" && pwd)/python
    export PYSPARK_PYTHON
fi

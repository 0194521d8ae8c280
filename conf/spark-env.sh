# Picked up with SPARK_CONF_DIR=conf. Spark looks for format("spark_log") with the Python that this
# names, and runs its tasks with it. Without it that is the first python3 on the PATH, which knows
# neither when the environment is not activated: DATA_SOURCE_NOT_FOUND.

if [ -z "$PYSPARK_PYTHON" ] && [ -x "$SPARK_CONF_DIR/../.venv/bin/python" ]; then
    PYSPARK_PYTHON=$(cd "$SPARK_CONF_DIR/../.venv/bin" && pwd)/python
    export PYSPARK_PYTHON
fi

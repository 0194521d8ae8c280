PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# The classifiers of setup.cfg name them, and CI runs all tests on each.
PYTHONS ?= 3.11 3.12 3.13

# Many images set it, and then each of the tests' processes compiles all tests again: a run of them
# takes 16 s more on each core.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.NOTPARALLEL: # Java is checked before the environment is made
.PHONY: help demo notebooks test test-long test-stripes test-pythons test-clients coverage test-stores s3-server duckdb trino gateway-suites kafka-suites prometheus bench-exporter bench-console bench-gateway-idle bench-gateway-connect bench-gateway-producers bench-own-producers bench-gateway-tools simulate simulate-groups simulate-offsets simulate-transactions simulate-gateways check lint english types layers format docs site bench bench-kafka bench-streams bench-reads bench-clients bench-mirror bench-transactions bench-committed-reads bench-replication bench-compaction bench-requests bench-record-batches bench-gateway bench-gateway-executor bench-gateway-streams bench-tables bench-log java venv clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: java venv ## Send the flights of 2013 through a log and replay some of them (a root under .demo)
	@$(BIN)/python jobs/demo.py

notebooks: venv ## Open the notebooks in Jupyter, which is installed first; they read what make demo leaves
	@$(BIN)/python -m jupyterlab --version >/dev/null 2>&1 || \
	  PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -q -c constraints.txt 'jupyterlab>=4.2,<5'
	@$(BIN)/python -m jupyterlab notebooks

# Files in the order of tests/conftest.py: the longest first.
TOGETHER = -n $(or $(JOBS),2) --dist loadfile --no-loadscope-reorder

test: java venv s3-server duckdb ## Run the tests; ARGS='-k segment' picks some, JOBS=0 runs them in one process
	@$(BIN)/python -m pytest $(TOGETHER) -m "not long" $(ARGS)

test-long: java venv s3-server prometheus ## Run the tests that take minutes: campaigns of kills, clusters, the commands of the README
	@$(BIN)/python -m pytest $(TOGETHER) -m long $(ARGS)

# The tests of clients, and the campaigns whose topics an Admin creates.
STRIPED = producer consumer transaction admin topic_read faults

test-stripes: venv s3-server ## Run the tests of clients, and those that kill processes, with topics of 4 stripes
	@$(BIN)/python -m pytest $(TOGETHER) -m "not long and not spark" --stripes 4 $(STRIPED:%=tests/%) $(ARGS)

test-pythons: ## Run the tests that need no Spark on each supported Python; PYTHONS=3.12 picks one
	@for version in $(PYTHONS); do \
	  $(MAKE) --no-print-directory VENV=.venv-$$version PYTHON=python$$version test-clients || exit; \
	done

test-clients: venv s3-server duckdb ## Run the tests that need no Spark
	@$(BIN)/python -m pytest $(TOGETHER) -m "not long and not spark" $(ARGS)

coverage: java venv s3-server duckdb ## Run the tests that need no Spark, and show which lines they do not reach
	@$(BIN)/python -m pytest $(TOGETHER) -m "not long and not spark" --cov --cov-report=term $(ARGS)

test-stores: venv ## Run the store suite on Google's and Azure's emulators (takes Go and npm)
	@sh conf/build-store-servers.sh gcs azure
	@$(BIN)/python -m pytest tests/stores $(ARGS)

s3-server: ## Build the S3 server of the tests, once (takes Go; tests do with less without it)
	@sh conf/build-store-servers.sh s3

duckdb: venv ## Fetch a DuckDB whose own reader of Delta tables is on PyPI, once, for the tests of tables
	@sh conf/fetch-duckdb.sh $(BIN)/python

trino: venv s3-server ## Read the table of a topic with Trino, on a disk and on S3 (Maven fetches 800 MB, once; takes Java 24)
	@sh conf/fetch-trino.sh
	@$(BIN)/python -m pytest tests/table/test_trino.py $(ARGS)

gateway-suites: venv ## Run the test suites of Kafka's clients against gateways; ARGS='franz-go --select ETL' picks some
	@$(BIN)/python -m tests.gateway.suites $(or $(ARGS),clients)

kafka-suites: java venv ## Run the tests and tools of Kafka's own project against gateways (needs Maven); ARGS='kafka-tools' picks some
	@$(BIN)/python -m tests.gateway.suites $(or $(ARGS),kafka)

prometheus: ## Fetch Debian's Prometheus for the test of the dashboard, once (takes apt; nothing is installed)
	@sh conf/fetch-prometheus.sh

bench-exporter: venv ## Measure a scrape of a root of 1,000 topics and 100 groups
	@$(BIN)/python -m benchmarks.exporter $(ARGS)

bench-console: venv ## Measure the console's pages and its search (1,000 topics, 10 M records)
	@$(BIN)/python -m benchmarks.console_pages $(ARGS)
	@$(BIN)/python -m benchmarks.console_search

simulate: venv ## Run the log on simulated storage; SEEDS=100000 takes longer, ARGS='--seed 7' replays one
	@$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),10000) $(ARGS)

simulate-groups: venv ## Run consumer groups in the deterministic simulator; SEEDS=100000 at length
	@$(BIN)/python -m tests.simulation --of groups --seeds $(or $(SEEDS),2000) $(ARGS)

simulate-offsets: venv ## Run the table of committed offsets in the deterministic simulator; SEEDS=100000 at length
	@$(BIN)/python -m tests.simulation --of offsets --seeds $(or $(SEEDS),2000) $(ARGS)

simulate-transactions: venv ## Run transactions in the deterministic simulator; SEEDS=100000 at length
	@$(BIN)/python -m tests.simulation --of transactions --seeds $(or $(SEEDS),2000) $(ARGS)

simulate-gateways: venv ## Run groups and transactions of Kafka's clients in the deterministic simulator; SEEDS=100000 at length
	@for of in gateway-groups consumer-protocol gateway-transactions; do \
		$(BIN)/python -m tests.simulation --of $$of --seeds $(or $(SEEDS),2000) $(ARGS) || exit 1; \
	done

check: lint english types layers ## Everything that is checked without running the code

lint: venv ## Check style and formatting
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/codespell

english: venv ## Check docstrings for English that only their authors can complete (CONTRIBUTING.md)
	@$(BIN)/python -m tests.english_contract

types: venv ## Check types
	@$(BIN)/mypy

layers: venv ## Check that imports point one way
	@$(BIN)/lint-imports --no-logo --no-cache

format: venv ## Format the code and fix what can be fixed
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

docs: venv ## Write docs/configuration.md, docs/metrics.md, docs/cli.md, docs/gateway-parity.md and the clients' typed settings from their sources
	@$(BIN)/python -c 'from spark_log.config import markdown; print(markdown(), end="")' \
	  > docs/configuration.md
	@$(BIN)/python -c 'from spark_log.config.typed_dicts import typed_dicts; print(typed_dicts(), end="")' \
	  > spark_log/config/settings.py
	@$(BIN)/python -c 'from spark_log.metrics import metrics_page; print(metrics_page(), end="")' \
	  > docs/metrics.md
	@$(BIN)/python -c 'from spark_log.cli.page import cli_page; print(cli_page(), end="")' \
	  > docs/cli.md
	@$(BIN)/python -m tests.gateway.suites.page > docs/gateway-parity.md

site: venv ## Build the documentation as a site, into site/; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict -q
	@echo 'See it: $(BIN)/python -m http.server -d site'

bench: java venv ## Compare with Parquet, both written and read by Spark; ARGS go to the benchmark
	@$(BIN)/python -m benchmarks.spark_vs_parquet $(ARGS)

bench-gateway: java venv ## Compare a gateway with a real Kafka broker (needs Maven); ARGS='--s3' counts requests, too
	@$(BIN)/python -m benchmarks.gateway $(ARGS)

bench-gateway-executor: venv ## Compare a gateway in a Spark executor with one that is a process of its own
	@$(BIN)/python -m benchmarks.gateway_executor $(ARGS)

bench-gateway-idle: java venv ## Measure clients that wait, at a gateway and at a real Kafka broker (needs Maven)
	@$(BIN)/python -m benchmarks.gateway_idle $(ARGS)

bench-gateway-connect: java venv ## Copy a file by Kafka Connect, at a gateway and at a real Kafka broker (needs Maven)
	@$(BIN)/python -m benchmarks.gateway_connect $(ARGS)

bench-gateway-producers: java venv ## Measure delivery times of many producers, at both (needs Maven)
	@$(BIN)/python -m benchmarks.gateway_producers $(ARGS)

bench-own-producers: venv ## Measure delivery times of several producers, each a process of its own
	@$(BIN)/python -m benchmarks.own_producers $(ARGS)

bench-gateway-tools: java venv ## Measure with Kafka's own perf tools, at a gateway and at a real Kafka broker (needs Maven)
	@$(BIN)/python -m benchmarks.gateway_tools $(ARGS)

bench-gateway-streams: java venv ## Count words by Kafka Streams, at a gateway and at a real Kafka broker (needs Maven)
	@$(BIN)/python -m benchmarks.gateway_streams $(ARGS)

bench-tables: java venv ## Compare read_table with a Delta table and a real Kafka broker (needs Maven)
	@$(BIN)/python -m benchmarks.spark_table_reads $(ARGS)

bench-kafka: java venv ## Compare with a real Kafka broker (needs Maven); ARGS go to the benchmark
	@$(BIN)/python -m benchmarks.spark_vs_kafka $(ARGS)

bench-streams: java venv ## Compare streaming with Kafka: a copy, and a micro-batch of one record
	@$(BIN)/python -m benchmarks.spark_streams_vs_kafka $(ARGS)

bench-reads: java venv ## Compare reads of some columns, and of one day of thirty, with Parquet
	@$(BIN)/python -m benchmarks.spark_reads_vs_parquet $(ARGS)

bench-clients: java venv ## Compare Producer and Consumer with confluent-kafka and a real Kafka broker (needs Maven)
	@$(BIN)/python -m benchmarks.clients_kafka $(ARGS)

bench-mirror: java venv ## Compare the bridge to Kafka with Kafka's clients alone (needs Maven)
	@$(BIN)/python -m benchmarks.mirror $(ARGS)

bench-transactions: java venv ## Compare transactions with librdkafka's and a real Kafka broker (needs Maven)
	@$(BIN)/python -m benchmarks.transactions_kafka $(ARGS)

bench-committed-reads: java venv ## Compare reads of committed records with reads of all records, also by Spark
	@$(BIN)/python -m benchmarks.committed_reads $(ARGS)

bench-replication: venv ## Compare three replicas with one; measure the loss of a root and an election
	@$(BIN)/python -m benchmarks.replication $(ARGS)

bench-compaction: java venv ## Compare compaction with the log cleaner of a real Kafka broker (needs Maven)
	@$(BIN)/python -m benchmarks.log_compaction $(ARGS)

bench-requests: venv ## Count the requests of each operation on an S3 server; ARGS='--page docs/internals/requests.md' writes the page
	@$(BIN)/python -m benchmarks.requests $(ARGS)

bench-record-batches: venv ## Measure the codec of Kafka's record batches, compiled and in numpy
	@$(BIN)/python -m benchmarks.record_batches $(ARGS)

bench-log: venv ## Measure the partition log; ARGS='append_latency lookup' picks some
	@$(BIN)/python -m benchmarks.log_all $(ARGS)

java: ## Check that Spark will find Java 17 or 21
	@sh conf/check-java.sh

venv: $(VENV)/.installed ## Make .venv with pinned dependencies; PYTHON=python3.12 picks the interpreter

$(VENV)/.installed: setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "spark-log needs Python 3.11 or newer, found $$($(PYTHON) -V 2>/dev/null || echo none)" \
	    "as '$(PYTHON)': name another with make PYTHON=…" >&2; exit 2; }
	@echo "Installing into $(VENV): 1.2 GB, a minute or more the first time"
	@$(PYTHON) -m venv $(VENV)
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -q -c constraints.txt -e '.[dev,s3,bench]'
# pip compiles what it installs, but not this package. Without bytecode a command that runs without make compiles its
# modules again where PYTHONDONTWRITEBYTECODE is set, as in many images: a third of its time.
	@$(BIN)/python -m compileall -q spark_log
	@touch $@

clean: ## Remove what runs and tests leave behind (.venv stays)
	rm -rf .demo .hypothesis site .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build \
	  spark-warehouse metastore_db derby.log *.egg-info
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

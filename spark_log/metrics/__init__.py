"""Metrics in Prometheus' format, below the clients that have them.

- `definitions`: the one table of all metrics, from which docs/metrics.md is generated.
- `histogram`: counts durations.
- `family`, `exposition`: the values of a metric, and their text form.
- `registry`: families as a collector of the library prometheus_client (extra ``metrics``).
- `client_metrics`: what `Producer` and `Consumer` give to a registry, or to a port of their own.
- `request_times`: durations of the calls of a store.
- `page`: docs/metrics.md.
- `server`: the answer to a scrape over HTTP.
"""

from spark_log.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)

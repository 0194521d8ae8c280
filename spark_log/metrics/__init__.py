"""Metrics in Prometheus' format, in a layer below the clients.

- `definitions`: the table of all metrics, from which docs/metrics.md is generated.
- `histogram`: distributions of durations.
- `family`, `exposition`: the values of a metric, and their text form.
- `registry`: families as a collector of the library prometheus_client (extra ``metrics``).
- `client_metrics`: the metrics of a `Producer` or `Consumer`, in a registry or at a port.
- `request_times`: durations of the calls of a store.
- `page`: the text of docs/metrics.md.
- `server`: the answer to a scrape over HTTP.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)

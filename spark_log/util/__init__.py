"""Small things that any module may use, and that know nothing of logs.

- `clock`, `backoff`: the injected clock, and the pauses between attempts.
- `suppressed`: counts and logs the errors that the program continues after.
- `terminal_text`, `shown_list`: text and lists for a terminal, a log line or an error message.
- `untrusted_json`: JSON that another program may have forged.
- `random_ids`: ids of topics, members and compactions.
- `exports`, `lazy_property`, `foreign_methods`: names of modules and objects that are looked up.
- `log_level`: log lines that an operator turns on by an environment variable.
- `stop_signals`: SIGTERM and SIGINT as an event.
- `any_address`: whether an address to listen on means all of a machine.
- `throttle`: a limit in bytes per second.
- `versioned_records`: records as versioned JSON, of the metadata, of groups and of transactions.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)

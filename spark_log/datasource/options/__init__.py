"""Options of ``format("spark_log")``.

`read_options` and `write_options` have a table of all options and their parsed form;
`option_parser` finds options by name and converts values; `kafka_options` translates or ignores
options for Kafka's clients.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)

"""All pages, in the order of the navigation."""

from __future__ import annotations

from typing import Any, Final

from spark_log.console.view import View
from spark_log.console.views.cluster import BROKERS, CONFIGS
from spark_log.console.views.gateways import GATEWAYS
from spark_log.console.views.group import GROUP, HISTORY
from spark_log.console.views.groups import GROUPS
from spark_log.console.views.overview import OVERVIEW
from spark_log.console.views.records import RECORD, RECORDS
from spark_log.console.views.search import SEARCH
from spark_log.console.views.topics import TOPIC, TOPICS
from spark_log.console.views.transactions import TRANSACTIONS

VIEWS: Final[tuple[View[Any], ...]] = (
    OVERVIEW,
    TOPICS,
    TOPIC,
    RECORDS,
    RECORD,
    SEARCH,
    GROUPS,
    GROUP,
    HISTORY,
    TRANSACTIONS,
    BROKERS,
    GATEWAYS,
    CONFIGS,
)

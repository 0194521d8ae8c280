"""Programs that nobody here wrote, run against gateways: the test suites of Kafka's clients.

`python -m tests.gateway.suites` (``make gateway-suites``) installs what a suite needs, starts
gateways, and prints what passed. `suite.py` says what a suite is; each other file has one.
"""

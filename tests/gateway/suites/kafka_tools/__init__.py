"""The suite of Kafka's command-line tools, which compares a gateway with a real Kafka.

`tools_suite` runs the scenarios: those of `topics`, `configs`, `groups`, `records`, `transactions`
and `cluster`. `differences` has what may differ, and why.
"""

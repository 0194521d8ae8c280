"""Reads Prometheus' text format as Prometheus does."""

import urllib.request

from prometheus_client.parser import text_string_to_metric_families


def samples(text):
    """Return ``{(name, label pairs …): value}``; assert that each is documented and unique."""
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def value(text, name, **labels):
    """Return the value of one sample; None if there is no such sample."""
    return samples(text).get((name, *sorted(labels.items())))


def get(port, path="/metrics"):
    """Return the response of a metrics server."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return answer.read()

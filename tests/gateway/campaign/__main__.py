"""Runs one campaign from a shell, and prints its report as JSON."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

import typer

from tests.gateway.campaign.campaign import GatewayCampaign
from tests.gateway.campaign.workloads import WORKLOADS


def main() -> int:
    """Run a campaign; return 1 if it found anything."""
    parser = argparse.ArgumentParser(prog="python -m tests.gateway.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="duration of the faults")
    parser.add_argument("--store", choices=("disk", "s3"), default="disk")
    parser.add_argument("--gateways", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--rate", type=float, default=20.0, help="records/s of each producer")
    parser.add_argument("--folder", type=Path, help="an empty directory, which is kept")
    parser.add_argument("--report", type=Path, help="a file for the report, too")
    parser.add_argument("--without-java", action="store_true")
    parser.add_argument("--without-rdkafka-transactions", action="store_true")
    for name in WORKLOADS:
        parser.add_argument(f"--without-{name}", action="store_true")
    given = parser.parse_args()
    typer.echo(f"seed {given.seed}", err=True)
    with tempfile.TemporaryDirectory(prefix="gateway-campaign-") as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        campaign = GatewayCampaign(
            folder,
            given.store,
            given.gateways,
            given.seed,
            given.minutes * 60,
            rate=given.rate,
            with_java=not given.without_java,
            with_rdkafka_transactions=not given.without_rdkafka_transactions,
            workloads=[each for each in WORKLOADS if not getattr(given, f"without_{each}")],
            progress=lambda line: typer.echo(line, err=True),
        )
        report = json.dumps(campaign.run(), indent=2)
    typer.echo(report)
    if given.report:
        given.report.write_text(report + "\n")
    return 1 if campaign.findings else 0


if __name__ == "__main__":
    sys.exit(main())

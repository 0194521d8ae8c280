#!/bin/sh
# Puts Debian's Prometheus into the user's cache, once, for the test of conf/grafana: the package is
# downloaded and unpacked, not installed, so no service runs. Prints one line. On a system without
# apt the test is skipped, so that is not a failure.

folder=${XDG_CACHE_HOME:-$HOME/.cache}/spark-log/prometheus

if [ -e "$folder/usr/bin/prometheus" ]; then
    echo "Prometheus is already there: $folder"
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg >/dev/null 2>&1; then
    echo "Prometheus was not fetched: this system has no apt"
    exit 0
fi
echo "Fetching Debian's package of Prometheus (20 MB), once"
rm -rf "$folder.partial"
mkdir -p "$folder.partial"
cd "$folder.partial" || exit 0
if apt-get download -qq prometheus >fetch.log 2>&1 && dpkg -x prometheus_*.deb . >>fetch.log 2>&1 &&
    rm prometheus_*.deb && mv "$folder.partial" "$folder"; then
    exit 0
fi
echo "Prometheus could not be fetched (apt-get update may help): see $folder.partial/fetch.log"

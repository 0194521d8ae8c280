#!/bin/sh
# Puts Trino with its Delta Lake connector into the user's cache, once, for the test that reads the
# table of a topic with it. Maven Central's archive has 800 MB; 400 MB of it are kept. Prints one line
# to say what it does. Exit status 1 if Trino could not be fetched.

version=476
folder=${XDG_CACHE_HOME:-$HOME/.cache}/spark-log/trino-$version

if [ -e "$folder" ]; then
    echo "Trino $version is already there: $folder"
    exit 0
fi
if ! command -v mvn >/dev/null 2>&1; then
    echo "Trino was not fetched: mvn is not on the PATH (install maven)" >&2
    exit 1
fi
echo "Fetching Trino $version with Maven (800 MB), once"
rm -rf "$folder.partial"
mkdir -p "$folder.partial"
# A repository of its own, so that the user's does not keep the archive.
if mvn -q -B "-Dmaven.repo.local=$folder.partial/maven" dependency:copy \
    "-Dartifact=io.trino:trino-server:$version:tar.gz" "-DoutputDirectory=$folder.partial" \
    >"$folder.log" 2>&1 &&
    tar -xzf "$folder.partial/trino-server-$version.tar.gz" -C "$folder.partial" >>"$folder.log" 2>&1 &&
    cd "$folder.partial/trino-server-$version" &&
    mv plugin all && mkdir plugin && mv all/delta-lake plugin && # jars are hard links into others
    rm -rf all && mv "$folder.partial/trino-server-$version" "$folder"; then
    rm -rf "$folder.partial" "$folder.log"
    exit 0
fi
rm -rf "$folder.partial"
echo "Trino could not be fetched: see $folder.log" >&2
exit 1

#!/bin/sh
# Builds the servers for tests of object stores, once, into the user's cache: s3 (versitygw), gcs
# (fake-gcs-server), azure (Azurite). Prints one line per server. If Go is missing, the tests of s3
# use moto, so that is not a failure. The tests of gcs and azure need their servers.

cache=${XDG_CACHE_HOME:-$HOME/.cache}/spark-log
status=0

build() { # name, folder, file, tool, command...
    name=$1 folder=$cache/$2 file=$3 tool=$4
    shift 4
    if [ -e "$folder/$file" ]; then
        echo "$name is already built: $folder"
        return 0
    fi
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "$name was not built: $tool is not on the PATH"
        return 1
    fi
    echo "Building $name with $tool; this takes a minute or two, and is done once"
    rm -rf "$folder.partial"
    mkdir -p "$folder.partial"
    if "$@" >"$folder.partial/build.log" 2>&1 && mv "$folder.partial" "$folder"; then
        return 0
    fi
    echo "$name could not be built: see $folder.partial/build.log"
    return 1
}

go_install() {
    GOBIN=$folder.partial go install "$1"
}

for server in "$@"; do
    case $server in
    s3)
        build "versitygw 1.8.0" versitygw-1.8.0 versitygw go \
            go_install github.com/versity/versitygw/cmd/versitygw@v1.8.0 || :
        ;;
    gcs)
        build "fake-gcs-server 1.56.1" fake-gcs-server-1.56.1 fake-gcs-server go \
            go_install github.com/fsouza/fake-gcs-server@v1.56.1 || status=1
        ;;
    azure)
        build "Azurite 3.35.0" azurite-3.35.0 node_modules/azurite npm \
            npm install --no-audit --no-fund --prefix "$cache/azurite-3.35.0.partial" \
            azurite@3.35.0 || status=1
        ;;
    esac
done
exit $status

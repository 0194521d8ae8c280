#!/bin/sh
# Builds servers that tests run against, each once, into the user's cache: s3 (versitygw), gcs
# (fake-gcs-server), azure (Azurite). One line says what happened. Without Go or npm the tests of
# s3 do with moto, and this is no failure; those of the others cannot run, and it is.

cache=${XDG_CACHE_HOME:-$HOME/.cache}/spark-log
status=0

build() { # name, folder, file, tool, command...
    name=$1 folder=$cache/$2 file=$3 tool=$4
    shift 4
    if [ -e "$folder/$file" ]; then
        echo "$name is built: $folder"
        return 0
    fi
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "$name is not built: there is no $tool on the PATH"
        return 1
    fi
    echo "Building $name with $tool, once; this takes a minute or two"
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

#!/bin/sh
# Gives four principals (object ids) the roles of a root: a reader, a consumer, a writer and an admin.
#
#     assign.sh SCOPE READER CONSUMER WRITER ADMIN
#
# SCOPE is the resource id of the container: /subscriptions/…/blobServices/default/containers/NAME. All
# of them read the whole container. Replace PREFIX in the conditions by the root's path in it first.
set -eu
if [ $# -ne 5 ]; then
    echo "usage: $0 SCOPE READER CONSUMER WRITER ADMIN" >&2
    exit 2
fi
scope=$1 reader=$2 consumer=$3 writer=$4 admin=$5
here=$(dirname "$0")

az role assignment create --scope "$scope" --assignee-object-id "$reader" \
    --role "Storage Blob Data Reader"
assign() { # principal, condition
    az role assignment create --scope "$scope" --assignee-object-id "$1" \
        --role "Storage Blob Data Contributor" \
        --condition-version 2.0 --condition "$(cat "$here/$2.condition")"
}
assign "$consumer" consumer
assign "$writer" writer
assign "$admin" admin

#!/bin/sh
# Makes the directories of a root on a POSIX file system, with the rights of four roles. Run it once as
# root, before the first topic is made:
#
#     make-root.sh DIRECTORY ADMIN READERS CONSUMERS WRITERS
#
# ADMIN is a user, the others are groups (names or numbers). The root is DIRECTORY/log. All roles are
# in READERS: only this group can enter DIRECTORY. What processes make below has the rights of the
# directory that it is in, whatever their umask is.
set -eu
if [ $# -ne 5 ]; then
    echo "usage: $0 DIRECTORY ADMIN READERS CONSUMERS WRITERS" >&2
    exit 2
fi
directory=$1 admin=$2 readers=$3 consumers=$4 writers=$5

make() { # mode, group, directories...
    mode=$1 group=$2
    shift 2
    install -d -m "$mode" -o "$admin" -g "$group" "$@"
}

make 0750 "$readers" "$directory"
cd "$directory"
# Sticky: a writer makes topics' directories here, but removes only its own. Setgid: what is made has
# the group of its directory.
make 3775 "$writers" log
cd log
make 2775 "$writers" __cluster_metadata-0 __transaction_state __witnesses
make 2775 "$consumers" __consumer_groups __consumer_offsets __witnesses/__consumer_groups
make 0755 "$writers" __deleted_topics

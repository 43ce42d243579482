#!/bin/sh
# As the entry point of ZooKeeper's official image: a member's number is in its data.
set -eu
[ -f "$ZOO_DATA_DIR/myid" ] || echo "${ZOO_MY_ID:-1}" > "$ZOO_DATA_DIR/myid"
exec "$@"

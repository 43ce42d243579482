#!/bin/sh
# As the entry point of ZooKeeper's image: a member's number is in its data.
[ -f "$ZOO_DATA_DIR/myid" ] || echo "$ZOO_MY_ID" > "$ZOO_DATA_DIR/myid"
exec "$@"

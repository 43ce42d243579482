#!/bin/sh
# As the script of that name in ZooKeeper's official image: `zkServer.sh start-foreground`.
set -eu
exec java -cp "/opt/zookeeper/*" ${JVMFLAGS:-} org.apache.zookeeper.server.quorum.QuorumPeerMain "$ZOO_CONF_DIR/zoo.cfg"

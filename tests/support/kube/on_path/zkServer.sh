#!/bin/sh
# As the script of that name in ZooKeeper's image, `zkServer.sh start-foreground`, by the jars that the tests have. All addresses
# of a pod are its own; here it has one of many.
set -eu
sed 's/^quorumListenOnAllIPs=true/quorumListenOnAllIPs=false/' "$ZOO_CONF_DIR/zoo.cfg" > "$HOME/zoo.cfg"
echo "clientPortAddress=$PODS_ADDRESS" >> "$HOME/zoo.cfg"
exec java -cp "$PODS_ZOOKEEPER_JARS" -Djdk.net.hosts.file="$PODS_HOSTS_OF_JAVA" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC $JVMFLAGS \
    org.apache.zookeeper.server.quorum.QuorumPeerMain "$HOME/zoo.cfg"

# ZooKeeper as the official image has it: the same entry point, folders and user. Java and the jars are this machine's.
ARG BASE
FROM ${BASE}
COPY java /opt/java
COPY jars /opt/zookeeper
COPY zookeeper/ /
RUN groupadd --gid 1000 zookeeper && useradd --uid 1000 --gid 1000 --no-create-home zookeeper \
    && mkdir --parents /data /datalog /conf /logs && chown 1000:1000 /data /datalog /conf /logs
ENV PATH=/opt/java/bin:/apache-zookeeper/bin:$PATH ZOO_CONF_DIR=/conf ZOO_DATA_DIR=/data
USER 1000
ENTRYPOINT ["/docker-entrypoint.sh"]
CMD ["zkServer.sh", "start-foreground"]

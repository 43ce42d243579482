ARG BASE
FROM ${BASE}
ENTRYPOINT ["sleep", "infinity"]

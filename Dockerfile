# A broker in a container: docker build --tag braidmq . && docker run --publish 8080:8080 braidmq --authorizer any --insecure
# Settings are options after the image's name, or BRAIDMQ_* variables (docs/cli.md).
# The jobs of `mq pipeline`, with Spark and Java: docker build --target spark --tag braidmq-spark .

# The official image of that day. The digest is what is pulled; the words before it are for people. Another one may be
# given, such as a company's own: docker build --build-arg BASE=...
ARG BASE=docker.io/library/python:3.11.16-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

# What is not ours: a layer that changes with the lock alone. Only files with a hash that the lock has are installed.
FROM ${BASE} AS packages
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/braidmq
COPY locks/server.txt /tmp/server.txt
RUN /opt/braidmq/bin/pip install --require-hashes --requirement /tmp/server.txt

FROM packages AS project
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY filer/ filer/
COPY groups/ groups/
COPY leader/ leader/
COPY mq/ mq/
COPY pipeline/ pipeline/
COPY clients/ clients/
# The version names the commit: `mq --version`, `mq cluster status` and the metrics show how far an upgrade has come.
ARG REVISION=unknown
RUN commit="$(printf %.12s "$REVISION" | tr 'A-F' 'a-f')"; case "$commit" in *[!0-9a-f]*|'') ;; *) \
        sed -i "s/^version = \"\(.*\)\"/version = \"\1+g$commit\"/" pyproject.toml ;; esac
# Installs nothing but this project, into a folder that is laid over the packages.
RUN /opt/braidmq/bin/pip install --no-deps --no-build-isolation --prefix /project .

# What jobs need besides, in a folder that is laid over the packages too: Spark, pandas, pyiceberg.
FROM packages AS spark-packages
COPY locks/spark.txt /tmp/spark.txt
RUN /opt/braidmq/bin/pip install --require-hashes --prefix /spark --requirement /tmp/spark.txt

# What each image has of Python's packages, as CycloneDX, with the hashes of the locks.
FROM packages AS sboms
COPY locks/supply.txt /tmp/supply.txt
RUN python3 -m venv /supply && /supply/bin/pip install --require-hashes --requirement /tmp/supply.txt
COPY pyproject.toml locks/spark.txt /tmp/
RUN mkdir /sboms && for lock in server spark; do \
        /supply/bin/cyclonedx-py requirements --pyproject /tmp/pyproject.toml --output-reproducible --of JSON \
            -o "/sboms/$lock.cdx.json" "/tmp/$lock.txt" || exit 1; \
    done

# What both images have, in layers that they share.
FROM ${BASE} AS runtime
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/braidmq braidmq
COPY --from=packages /opt/braidmq /opt/braidmq
# It writes nothing but its data: docker run --read-only --cap-drop ALL --security-opt no-new-privileges ...
ENV PATH=/opt/braidmq/bin:$PATH
ENV PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/braidmq
VOLUME /var/lib/braidmq

FROM runtime AS spark
# The fonts and pictures that Debian recommends beside it are for screens.
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log /var/cache/ldconfig/aux-cache
COPY --from=spark-packages /spark /opt/braidmq
COPY --from=project /project /opt/braidmq
COPY --from=sboms /sboms/spark.cdx.json /opt/braidmq/sbom.cdx.json
ARG BASE
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="BraidMQ's jobs on Spark" \
      org.opencontainers.image.description="mq pipeline: load, compact and export the topics of BraidMQ" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${BASE}"
USER 10001
# A job writes its scratch files to /tmp.
ENTRYPOINT ["mq", "pipeline"]

# The last one is what is built without --target.
FROM runtime AS broker
COPY --from=project /project /opt/braidmq
COPY --from=sboms /sboms/server.cdx.json /opt/braidmq/sbom.cdx.json
ARG BASE
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="BraidMQ" \
      org.opencontainers.image.description="A message queue on object storage whose log is a table" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${BASE}"
# A number, so that Kubernetes can see that it is not root.
USER 10001
ENV BRAIDMQ_HOST=0.0.0.0
EXPOSE 8080
# By the options that the container was started with: its port, and TLS where there is some.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 CMD ["mq", "healthcheck", "--pid", "1", "--quiet"]
ENTRYPOINT ["mq", "serve"]

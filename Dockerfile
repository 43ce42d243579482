# A broker in a container: docker build --tag braidmq . && docker run --publish 8080:8080 braidmq --authorizer any --insecure
# Settings are options after the image's name, or BRAIDMQ_* variables (docs/cli.md).

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
# Installs nothing but this project, into a folder that is laid over the packages.
RUN /opt/braidmq/bin/pip install --no-deps --no-build-isolation --prefix /project .

FROM ${BASE}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="BraidMQ" \
      org.opencontainers.image.description="A message queue on object storage whose log is a table" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/braidmq braidmq
COPY --from=packages /opt/braidmq /opt/braidmq
COPY --from=project /project /opt/braidmq
# A number, so that Kubernetes can see that it is not root.
USER 10001
WORKDIR /var/lib/braidmq
VOLUME /var/lib/braidmq
# It writes nothing but its data: docker run --read-only --cap-drop ALL --security-opt no-new-privileges ...
ENV PATH=/opt/braidmq/bin:$PATH
ENV BRAIDMQ_HOST=0.0.0.0
ENV PYTHONDONTWRITEBYTECODE=1
EXPOSE 8080
ENTRYPOINT ["mq", "serve"]

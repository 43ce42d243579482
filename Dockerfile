# A broker in a container: docker build --tag braidmq . && docker run --publish 8080:8080 braidmq --authorizer any --insecure
# Settings are options after the image's name, or BRAIDMQ_* variables (docs/cli.md).
FROM python:3.11-slim

WORKDIR /opt/braidmq
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY filer/ filer/
COPY groups/ groups/
COPY leader/ leader/
COPY mq/ mq/
COPY pipeline/ pipeline/
COPY clients/ clients/
RUN pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt '.[server,otel]'

RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/braidmq braidmq
USER braidmq
WORKDIR /var/lib/braidmq
VOLUME /var/lib/braidmq
ENV BRAIDMQ_HOST=0.0.0.0
EXPOSE 8080
ENTRYPOINT ["mq", "serve"]

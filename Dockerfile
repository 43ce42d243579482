# A broker in a container: docker build --tag braidmq . && docker run --publish 8080:8080 braidmq --authorizer any --insecure
# Settings are options after the image's name, or BRAIDMQ_* variables (docs/cli.md).
FROM python:3.11-slim

WORKDIR /opt/braidmq
COPY pyproject.toml README.md LICENSE ./
COPY locks/ locks/
COPY filer/ filer/
COPY groups/ groups/
COPY leader/ leader/
COPY mq/ mq/
COPY pipeline/ pipeline/
COPY clients/ clients/
# Only files with a hash that the lock has. The second step installs nothing but this project.
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --requirement locks/server.txt
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation .

RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/braidmq braidmq
USER braidmq
WORKDIR /var/lib/braidmq
VOLUME /var/lib/braidmq
# It writes nothing but its data: docker run --read-only --cap-drop ALL --security-opt no-new-privileges ...
ENV BRAIDMQ_HOST=0.0.0.0
ENV PYTHONDONTWRITEBYTECODE=1
EXPOSE 8080
ENTRYPOINT ["mq", "serve"]

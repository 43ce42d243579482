# The S3 server of `mq local` in an image of its own: what serves S3 is no part of a broker's image.
ARG BASE
FROM ${BASE}
USER 0
COPY constraints.txt /tmp/constraints.txt
RUN /opt/braidmq/bin/pip install --no-cache-dir --disable-pip-version-check --constraint /tmp/constraints.txt \
    "moto[s3]" flask flask-cors waitress
USER 10001
# Buckets are paths, whatever the name of the service.
ENV S3_IGNORE_SUBDOMAIN_BUCKETNAME=true
ENTRYPOINT ["python3", "-c", "from mq.local.s3_server import main; main(9000, host='0.0.0.0')"]

"""The default settings of `Client` and `AsyncClient`."""

import os

DEFAULT_URL = "http://127.0.0.1:8080"
URL_VARIABLE = "BRAIDMQ_URL"
TOKEN_VARIABLE, TOKEN_FILE_VARIABLE = "BRAIDMQ_TOKEN", "BRAIDMQ_TOKEN_FILE"
CA_VARIABLE = "BRAIDMQ_CA"
CLIENT_CERT_VARIABLE, CLIENT_KEY_VARIABLE = "BRAIDMQ_CLIENT_CERT", "BRAIDMQ_CLIENT_KEY"
DEFAULT_TIMEOUT_SECONDS = 30.0
DEFAULT_CONNECT_TIMEOUT_SECONDS = 3.0
DEFAULT_DELIVERY_TIMEOUT_SECONDS = 120.0
# Owners forget a producer that has been silent for an hour. After that they could store a repeated request twice.
LONGEST_DELIVERY_TIMEOUT_SECONDS = 1800.0
PAGE_ROWS = 10_000
"""The most messages of a page."""
DEFAULT_UPLOAD_THRESHOLD_BYTES = 1024 * 1024
DEFAULT_LINGER_SECONDS = 0.005
DEFAULT_BATCH_BYTES = 1024 * 1024
DEFAULT_MAX_PENDING_BYTES = 64 * 1024 * 1024
DEFAULT_PREFETCH = 1000
DEFAULT_COMMIT_SECONDS = 1.0


def default_url() -> str:
    """The default address of a broker: the variable `BRAIDMQ_URL`, as for `mq`, or this machine."""
    return os.environ.get(URL_VARIABLE) or DEFAULT_URL

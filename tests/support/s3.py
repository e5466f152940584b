"""An S3 server in this process (moto), and a fresh place on it for each test."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

REGION = "eu-west-1"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test-key",
    "AWS_SECRET_ACCESS_KEY": "test-secret-that-no-message-shows",
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
}
# A developer's own settings must not send the tests elsewhere.
UNSET = ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ALLOW_HTTP")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Yield the server's address; the AWS_* variables point there for as long as it runs."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    wanted = {**ENVIRONMENT, "AWS_ENDPOINT_URL": address}
    before = {name: os.environ.get(name) for name in (*wanted, *UNSET)}
    try:
        os.environ.update(wanted)
        for name in UNSET:
            os.environ.pop(name, None)
        yield address
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        server.stop()


@pytest.fixture
def s3_client(s3_server: str) -> Any:
    """Return a client that looks at the server behind our code's back."""
    return boto3.client("s3", endpoint_url=s3_server, region_name=REGION)


@pytest.fixture
def s3_location(s3_client: Any) -> str:
    """Return the address of an empty warehouse in a bucket of its own."""
    bucket = f"crannog-{uuid.uuid4().hex}"
    s3_client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    return f"s3://{bucket}/lake/warehouse"

"""Fixtures that more than one room needs."""

pytest_plugins = ["tests.real.s3_servers"]

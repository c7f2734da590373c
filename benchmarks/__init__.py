"""j2c beside its peers: `python -m benchmarks [CASE …]`. See README.md."""

"""What crosses machines: layers, manifests, runs and journals. Only the standard library."""

"""Where layers, bundles and runs live: the only thing that both clusters must reach."""

"""From a project and an environment to layers in the store: what is sent, and nothing else."""

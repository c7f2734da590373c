"""What starts jobs. New schedulers come in by the entry point group `j2c_lab.schedulers`."""

"""The stages of a run and what is known of runs: submit, follow, cancel, resume, fetch."""

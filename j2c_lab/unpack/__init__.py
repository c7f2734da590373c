"""The cluster side: fetch, verify, install, launch, report. Starts fast; no Jupyter here."""

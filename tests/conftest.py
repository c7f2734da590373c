"""Fixtures that more than one room needs."""

"""Measurements: each file is a command that prints a table and keeps what it measured as JSON."""

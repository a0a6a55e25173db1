"""The algorithms, and the data that they learn from."""

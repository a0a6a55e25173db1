"""Shared by all folders: trees of tensors, errors, random numbers, statistics, metrics, processes."""

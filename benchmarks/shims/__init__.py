"""One run of one library: python -m benchmarks.shims.NAME SETTINGS, where SETTINGS is JSON.

The last line that is printed is the result. The comparisons run each shim in a process of its own.
"""

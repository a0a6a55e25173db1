"""One run of one library: python -m benchmarks.shims.NAME SETTINGS, where SETTINGS is JSON.

The last line that is printed is the result. Each shim is run by benchmarks.recurrent in a process
of its own.
"""

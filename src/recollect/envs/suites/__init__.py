"""Suites of environments: one file or folder each, which is found by its name, so a new one is one new file.

A suite defines `listing`, id -> one-line description, and either `make(config, name)`, which builds a
`VecEnv`, or `resolve_alias(config, name)`, which returns the config of an environment of another suite.
Ids are suite:name. Optional: `BARE`, names that need no prefix, and `IMPORTS_MODULES`, whether names are
those of third-party modules.
"""

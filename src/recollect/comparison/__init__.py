"""Many runs: environments x models x seeds, here or on a cluster."""

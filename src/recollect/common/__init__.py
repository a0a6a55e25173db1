"""What every part uses: tensors in trees, errors, random numbers, statistics, processes."""

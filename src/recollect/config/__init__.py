"""The config of a run: fields, presets, tasks, and files of other programs."""

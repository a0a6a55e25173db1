"""Commands that are one file: list, demo, export; and the options of train, resume and eval."""

"""Reports over run folders: a page, a text and the numbers. Needs no torch."""

"""`recollect report`: turns run folders into a page, a text and a JSON file. Imports no torch.

Reading: runs.py (run folders), archive.py (.zip files of them), external_curves.py (curves of other
programs), groups.py (runs that differ only in the seed). Numbers: scores.py, curves.py, efficiency.py,
aggregate.py, with the intervals of common/intervals.py and the tests of significance.py; verdict.py puts
them into words, and summary.py holds all of it. The score of POPGym's paper: popgym_iterations.py (of a
run folder), popgym_scores.py (of models), popgym_published.py (published values), popgym_section.py.
Writing: sections.py orders the content as the blocks of blocks.py; page.py, markdown.py and figures.py
write them; report.py writes the files, and command.py is the command line.
"""

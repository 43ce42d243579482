"""What `bench/beside_peers.py` measures: each case with our broker, and with those peers that have something like it.

Begin with `case.py`: a case has sides, each of which is measured by itself, and tells figures for one row or several.
The other modules have the cases, by what is done: publishing, reading, loops of Python programs, subscribers, topics,
claims. `all_cases.py` lists them.
"""

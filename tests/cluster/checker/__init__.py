"""A workload on topics over real HTTP, its history, and a verdict: see `workload.py` for how to use it.

| module | what it is |
| --- | --- |
| `history.py` | what happened: requests, readers, faults, and its form as a file |
| `producers.py`, `consumers.py` | who publishes and who reads |
| `consumer_process.py`, `consumer_log.py`, `killed_consumers.py` | who reads in a process that may be killed |
| `workload.py` | runs them side by side and writes the history |
| `log_verdict.py` | what is wrong with messages read from a topic's start to its end |
| `reader_verdict.py` | what is wrong with what readers were given on the way |
| `divergence.py` | where two witnesses contradict each other, whatever the log says in the end |
| `gaps.py` | gaps that readers are told of |
| `tally.py` | a verdict in numbers |
| `verdict.py`, `judge.py` | the whole verdict, and the command that judges a history again |
"""

"""The parts of a read, and how a task reads them; batches and streams share this.

`planning.py` turns options into spans and partitions. `data_loss.py` handles positions whose messages retention has
removed. `span_reader.py` reads one span in a task. It builds on the modules of `spark`, not on its other folders.
"""

"""`mq topic`: create, configure, describe, split, merge and delete topics, and show their history.

`topic` holds the group and its simple commands: begin reading there. `split_and_merge` and `topic_history` hold the
others. `lineage` and `segment_traffic` describe segments, `braid_plot` draws them.
"""

"""Traffic: how many messages and bytes a second each open segment gets, counted by its owner.

`TopicTraffic` holds a `TrafficMeter` for each segment that this broker owns; begin reading there. `TrafficReporter`
sends the numbers to the leader, `TrafficView` shows them to people, and `OwnerTraffic` carries the averages to the
next owner when a segment moves. The leader decides by these numbers in `leader/traffic` and `leader/policy`.
"""

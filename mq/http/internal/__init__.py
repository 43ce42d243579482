"""Serves the calls of other brokers: the counterpart of `mq/peers`, which describes each call.

Begin with `endpoint`, which finds the call and runs its handler; `door` admits only brokers of the cluster. The
handlers are grouped by the role of this broker for the caller: the owner of a segment, its follower, the leader or a
source of traffic numbers. Every handler gets the `Call`, its parameters and the request's body, and packs its answer by
the call.
"""

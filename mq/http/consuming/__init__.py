"""Consumer groups over HTTP.

`group_bodies.py` has the bodies of requests. `group_desk.py` serves them at the group's coordinator, and
`stream_desk.py` serves those of members of stream groups. `group_router.py` finds the coordinator. `claims_page.py`
writes claimed messages, `group_document.py` the description of a group.
"""

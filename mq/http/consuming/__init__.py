"""Consumer groups over HTTP.

`group_bodies.py` are the bodies of requests. `group_desk.py` serves them where the group is coordinated, and
`stream_desk.py` those of members of stream groups; `group_router.py` finds out where that is. `claims_page.py` writes
claimed messages, `group_document.py` what a group is told to be.
"""

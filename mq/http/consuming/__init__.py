"""Consumer groups over HTTP.

`group_bodies.py` are the bodies of requests, `group_desk.py` serves them where the group is coordinated,
`group_router.py` finds out where that is, and `claims_page.py` writes claimed messages.
"""

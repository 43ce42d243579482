"""Consumer groups for clients, wherever a group is coordinated.

`group_service.py` is the way in: it finds the coordinator of a group, and passes the request on if that is another
broker. `operations.py` has all requests with their answers, and how brokers write both. At the coordinator,
`group_desk.py` lets one of the desks serve the request: `queue_desk.py` claims, acks, releases and extensions;
`stream_desk.py` members and commits; `message_desk.py` looks and redrives; `management_desk.py` the rest.
`claims_page.py` writes claimed messages, `group_document.py` the description of a group.
"""

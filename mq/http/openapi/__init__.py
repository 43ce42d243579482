"""The OpenAPI document: `document.py` makes it of the route table, the endpoints and the models of answers here.

The models describe. No endpoint serialises an answer by them; tests compare each answer with them. They are imported at
the first request for the document.
"""

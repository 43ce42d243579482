"""The HTTP interface (DESIGN.md §11): a bare dispatcher for the hot paths in front of a FastAPI app for the rest."""

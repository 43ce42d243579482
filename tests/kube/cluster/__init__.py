"""A Kubernetes of processes of this machine, and how it is asked. Begin with `control_plane.py`."""

"""What `make kube` and `make kube-node` run, built from the sources that the module in `go/` names.

Begin with `build.py`. `go_mod.py` writes `go/go.mod` for another version of Kubernetes.
"""

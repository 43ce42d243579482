"""The chart on a real control plane, whose nodes kwok plays: `make kube`.

`__main__.py` builds and starts it, and runs the tests of this folder against it. What they show is what Kubernetes
does with the chart's resources. What is in a container nobody runs here.
"""

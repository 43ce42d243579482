"""The chart on a real node, with real containers: `make kube-node`.

`__main__.py` builds programs and images, and goes on in namespaces of its own (`inside.py`), where the tests of this
folder run against a control plane, a kubelet, containerd, kube-proxy and CoreDNS. The pods are those of the chart:
brokers of the image that the Dockerfile makes, and ZooKeeper, beside an S3 server.
"""

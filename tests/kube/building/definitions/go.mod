// The modules that bring the definitions of others' resources: definitions.py reads their files.
module braidmq.dev/kube/definitions

go 1.24

require (
	github.com/cert-manager/cert-manager v1.18.2
	github.com/kedacore/keda/v2 v2.17.2
	github.com/prometheus-operator/prometheus-operator v0.85.0
	sigs.k8s.io/gateway-api v1.3.0
)

{{/* Whether a volume of yours is where `store.url`, a file://, has the messages. */}}
{{- define "braidmq.mountsStore" -}}
{{- $folder := printf "%s/" (.Values.store.url | trimPrefix "file://" | trimSuffix "/") -}}
{{- $mounts := .Values.extraVolumeMounts -}}
{{- range dig "deployment" "spec" "template" "spec" "containers" list .Values.patches -}}
{{- $mounts = concat $mounts (.volumeMounts | default list) -}}
{{- end -}}
{{- range $mounts -}}
{{- if hasPrefix (printf "%s/" (.mountPath | default "" | trimSuffix "/")) $folder -}}yes{{- end -}}
{{- end -}}
{{- end -}}
{{/* What the schema cannot say: settings that contradict each other. */}}
{{- define "braidmq.checks" -}}
{{- $name := include "braidmq.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "%s cannot be the name of a Service: give a release, or fullnameOverride, a name of small letters, digits and dashes that begins with a letter" $name) -}}
{{- end -}}
{{- range $where, $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels "zookeeper.podLabels" .Values.zookeeper.podLabels -}}
{{- range $label, $_ := fromYaml (include "braidmq.selector" (dict "root" $ "component" "broker")) -}}
{{- if hasKey $labels $label -}}
{{- fail (printf "%s: pods are found by %s, which the chart sets: leave it out, or set nameOverride" $where $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not .Values.store.url -}}
{{- fail "store.url has to be given, such as --set store.url=s3://bucket/prefix: messages are kept there" -}}
{{- end -}}
{{- if and .Values.store.existingClaim (not (hasPrefix "file:///store/" .Values.store.url)) -}}
{{- fail (printf "store.url has to be file:///store/FOLDER beside store.existingClaim, not %s: the volume is mounted at /store" .Values.store.url) -}}
{{- end -}}
{{- if and (hasPrefix "file://" .Values.store.url) (not .Values.store.existingClaim) (not (include "braidmq.mountsStore" .)) -}}
{{- fail (printf "store.existingClaim has to be given beside %s: nothing is mounted there, and a folder of a container goes with it" .Values.store.url) -}}
{{- end -}}
{{- if and (eq .Values.auth.authorizer "tokens") (not (include "braidmq.hasAdmin" .)) (not .Values.auth.tokenKeys.existingSecret) (not .Values.auth.tokenKeys.existingConfigMap) (not .Values.auth.oidc.issuer) -}}
{{- fail "auth: nobody could have a token: set auth.admin.enabled, auth.tokenKeys or auth.oidc.issuer" -}}
{{- end -}}
{{- if and .Values.auth.oidc.audience (not .Values.auth.oidc.issuer) -}}
{{- fail "auth.oidc.audience is that of auth.oidc.issuer, which has to be given beside it" -}}
{{- end -}}
{{- if and .Values.monitoring.serviceMonitor.enabled (eq .Values.monitoring.metrics "authorized") (eq .Values.auth.authorizer "tokens") (not (include "braidmq.hasAdmin" .)) (not .Values.patches.servicemonitor) -}}
{{- fail "monitoring.serviceMonitor: Prometheus would have no token: set auth.admin.enabled, monitoring.metrics to any, or the authorization by patches.servicemonitor" -}}
{{- end -}}
{{- if and .Values.tls.clientCaSecret (not .Values.tls.enabled) -}}
{{- fail "tls.clientCaSecret demands certificates of clients: set tls.enabled" -}}
{{- end -}}
{{- if and .Values.tls.clientCaSecret (not .Values.tls.clientCertSecret) -}}
{{- fail "tls.clientCertSecret has to be given beside tls.clientCaSecret: helm test and jobs show it" -}}
{{- end -}}
{{- if and .Values.tls.existingSecret .Values.tls.certManager.issuerName -}}
{{- fail "tls.existingSecret and tls.certManager.issuerName both bring the certificate: give one of them" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled .Values.autoscaling.keda.enabled -}}
{{- fail "autoscaling.enabled makes a HorizontalPodAutoscaler, and autoscaling.keda.enabled makes one by KEDA: set one of them" -}}
{{- end -}}
{{- if and .Values.autoscaling.keda.enabled (not .Values.autoscaling.keda.prometheusUrl) -}}
{{- fail "autoscaling.keda.prometheusUrl has to be given: KEDA asks Prometheus there" -}}
{{- end -}}
{{- if and .Values.tracing.enabled (not .Values.tracing.endpoint) -}}
{{- fail "tracing.endpoint has to be given: the collector is there" -}}
{{- end -}}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) -}}
{{- fail "autoscaling.minReplicas is more than autoscaling.maxReplicas" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) -}}
{{- fail "ingress.host has to be given" -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) -}}
{{- fail "httpRoute.parentRefs has to name a gateway" -}}
{{- end -}}
{{- if and .Values.zookeeper.tls.enabled (not .Values.zookeeper.external) -}}
{{- fail "zookeeper.tls is for zookeeper.external: the chart's own is reached by brokers alone, which networkPolicy sees to" -}}
{{- end -}}
{{- if not .Values.zookeeper.external -}}
{{- $name := include "braidmq.zookeeper" . -}}
{{- $there := lookup "apps/v1" "StatefulSet" .Release.Namespace $name -}}
{{- if and $there (ne (not (empty $there.spec.volumeClaimTemplates)) .Values.zookeeper.persistence.enabled) -}}
{{- fail (printf "zookeeper.persistence.enabled: Kubernetes does not change the volumes of a StatefulSet. Delete it, and upgrade again: kubectl --namespace %s delete statefulset %s" .Release.Namespace $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "braidmq.name" -}}
{{- include "braidmq.cut" (dict "name" (default .Chart.Name .Values.nameOverride) "most" 63) -}}
{{- end -}}

{{/* As Helm's own charts: the release's name, with the chart's behind it unless that is part of it. */}}
{{- define "braidmq.fullname" -}}
{{- $name := printf "%s-%s" .Release.Name (include "braidmq.name" .) -}}
{{- if .Values.fullnameOverride -}}
{{- $name = .Values.fullnameOverride -}}
{{- else if contains (include "braidmq.name" .) .Release.Name -}}
{{- $name = .Release.Name -}}
{{- end -}}
{{- include "braidmq.cut" (dict "name" $name "most" 46) -}}
{{- end -}}

{{/* The beginning of a name that is too long, with a letter or a digit at its end. */}}
{{- define "braidmq.cut" -}}{{ .name | trunc (int .most) | trimAll "-" }}{{- end -}}

{{- define "braidmq.peers" -}}{{ include "braidmq.fullname" . }}-peers{{- end -}}
{{/* Pods of a StatefulSet have its name and a digest of 10 characters as a label, of at most 63. */}}
{{- define "braidmq.zookeeper" -}}{{ include "braidmq.cut" (dict "name" (include "braidmq.fullname" .) "most" 42) }}-zookeeper{{- end -}}
{{- define "braidmq.clusterName" -}}{{ .Values.clusterName | default (include "braidmq.fullname" .) }}{{- end -}}
{{- define "braidmq.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "braidmq.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* What a component's pods are chosen by: it never changes. */}}
{{- define "braidmq.selector" -}}
app.kubernetes.io/name: {{ include "braidmq.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "braidmq.labels" -}}
{{ include "braidmq.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The labels of pods: the chart's, and `more` of the user's. */}}
{{- define "braidmq.podLabels" -}}
{{- $own := fromYaml (include "braidmq.labels" .) -}}
{{- toYaml (mustMergeOverwrite $own (deepCopy .root.Values.commonLabels) (deepCopy .more)) -}}
{{- end -}}

{{/* An image by tag or digest. `default` is the tag where there is none. */}}
{{- define "braidmq.image" -}}
{{- $tag := .image.tag | default .default -}}
{{- if .image.digest -}}
{{- /* A tag may have a digest of its own. */ -}}
{{- printf "%s:%s@%s" .image.repository (regexReplaceAll "@.*" $tag "") .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository $tag -}}
{{- end -}}
{{- end -}}

{{/* Names of secrets: the user's, or the chart's own. */}}
{{- define "braidmq.adminSecret" -}}{{ .Values.auth.admin.existingSecret | default (printf "%s-admin" (include "braidmq.fullname" .)) }}{{- end -}}
{{- define "braidmq.tlsSecret" -}}{{ .Values.tls.existingSecret | default (printf "%s-tls" (include "braidmq.fullname" .)) }}{{- end -}}
{{- define "braidmq.peerTlsSecret" -}}{{ .Values.peerTls.existingSecret | default (printf "%s-peer-tls" (include "braidmq.fullname" .)) }}{{- end -}}
{{- define "braidmq.peerKeysSecret" -}}{{ .Values.peerKeys.existingSecret | default (printf "%s-peer-keys" (include "braidmq.fullname" .)) }}{{- end -}}
{{- define "braidmq.zookeeperAuthSecret" -}}{{ .Values.zookeeper.auth.existingSecret | default (printf "%s-zookeeper-auth" (include "braidmq.fullname" .)) }}{{- end -}}

{{- define "braidmq.scheme" -}}{{ ternary "https" "http" .Values.tls.enabled }}{{- end -}}
{{- define "braidmq.url" -}}
{{- printf "%s://%s.%s.svc:%d" (include "braidmq.scheme" .) (include "braidmq.fullname" .) .Release.Namespace (int64 .Values.service.port) -}}
{{- end -}}
{{- define "braidmq.hasAdmin" -}}
{{- if and (eq .Values.auth.authorizer "tokens") .Values.auth.admin.enabled -}}yes{{- end -}}
{{- end -}}

{{/* The settings that all brokers have in common, as the file that `mq serve --config` reads. */}}
{{- define "braidmq.settings" -}}
{{- $v := .Values -}}
{{- $settings := dict "store" $v.store.url "cluster" (include "braidmq.clusterName" .) "authorizer" $v.auth.authorizer "metrics" $v.monitoring.metrics -}}
{{- $_ := set $settings "zookeeper" (include "braidmq.zookeeperAddresses" .) -}}
{{- $_ := set $settings "drain_timeout" (printf "%ds" (int64 $v.drainSeconds)) -}}
{{- $_ := set $settings "log_format" "json" -}}
{{- with $v.store.endpoint }}{{ $_ := set $settings "s3_endpoint" . }}{{ end -}}
{{- with $v.store.region }}{{ $_ := set $settings "s3_region" . }}{{ end -}}
{{- if hasPrefix "s3://" $v.store.url }}{{ $_ := set $settings "s3_addressing" $v.store.addressing }}{{ end -}}
{{- if $v.tls.enabled -}}
{{- $_ := set $settings "tls_cert" "/etc/braidmq/tls/tls.crt" -}}
{{- $_ := set $settings "tls_key" "/etc/braidmq/tls/tls.key" -}}
{{- $_ := set $settings "tls_ca" "/etc/braidmq/tls/ca.crt" -}}
{{- if $v.tls.clientCaSecret }}{{ $_ := set $settings "tls_client_ca" "/etc/braidmq/client-ca/ca.crt" }}{{ end -}}
{{- end -}}
{{- if or (and (eq $v.auth.authorizer "any") (not $v.tls.clientCaSecret)) (not $v.tls.enabled) }}{{ $_ := set $settings "insecure" true }}{{ end -}}
{{- if include "braidmq.hasAdmin" . }}{{ $_ := set $settings "static_tokens" "/etc/braidmq/admin/static-tokens.toml" }}{{ end -}}
{{- if eq $v.auth.authorizer "tokens" -}}
{{- if or $v.auth.tokenKeys.existingSecret $v.auth.tokenKeys.existingConfigMap }}{{ $_ := set $settings "token_keys" "/etc/braidmq/token-keys/public-keys.json" }}{{ end -}}
{{- with $v.auth.oidc.issuer }}{{ $_ := set $settings "oidc_issuer" . }}{{ end -}}
{{- with $v.auth.oidc.audience }}{{ $_ := set $settings "oidc_audience" . }}{{ end -}}
{{- end -}}
{{- $_ := set $settings "peer_port" 8081 -}}
{{- if $v.peerTls.enabled -}}
{{- $_ := set $settings "peer_tls_cert" "/etc/braidmq/peer-tls/tls.crt" -}}
{{- $_ := set $settings "peer_tls_key" "/etc/braidmq/peer-tls/tls.key" -}}
{{- $_ := set $settings "peer_tls_ca" "/etc/braidmq/peer-tls/ca.crt" -}}
{{- end -}}
{{- if $v.peerKeys.enabled }}{{ $_ := set $settings "peer_keys" "/etc/braidmq/peer-keys/peer-keys" }}{{ end -}}
{{- if $v.zookeeper.auth.enabled }}{{ $_ := set $settings "zookeeper_auth" "/etc/braidmq/zookeeper-auth/zookeeper-auth" }}{{ end -}}
{{- if $v.zookeeper.tls.enabled -}}
{{- $_ := set $settings "zookeeper_tls" true -}}
{{- if $v.zookeeper.tls.existingSecret }}{{ $_ := set $settings "zookeeper_ca" "/etc/braidmq/zookeeper-tls/ca.crt" }}{{ end -}}
{{- end -}}
{{- if $v.tracing.enabled }}{{ $_ := set $settings "tracing" "otlp" }}{{ end -}}
{{- range $name, $value := merge (deepCopy $v.config) $settings }}
{{ $name }} = {{ $value | toRawJson }}
{{- end -}}
{{- end -}}

{{- define "braidmq.zookeeperAddresses" -}}
{{- if .Values.zookeeper.external -}}
{{- .Values.zookeeper.external -}}
{{- else -}}
{{- $members := list -}}
{{- range $number := until (int .Values.zookeeper.replicas) -}}
{{- $name := include "braidmq.zookeeper" $ -}}
{{- $members = append $members (printf "%s-%d.%s.%s.svc:2181" $name $number $name $.Release.Namespace) -}}
{{- end -}}
{{- join "," $members -}}
{{- end -}}
{{- end -}}

{{/* Folders of files that brokers read: a name, and the secret or config map. */}}
{{- define "braidmq.files" -}}
{{- $v := .Values -}}
{{- if $v.tls.enabled }}
- {name: tls, secret: {{ include "braidmq.tlsSecret" . | quote }}}
{{- if $v.tls.clientCaSecret }}
- {name: client-ca, secret: {{ $v.tls.clientCaSecret | quote }}}
{{- end }}
{{- end }}
{{- if include "braidmq.hasAdmin" . }}
- {name: admin, secret: {{ include "braidmq.adminSecret" . | quote }}, only: static-tokens.toml}
{{- end }}
{{- if eq $v.auth.authorizer "tokens" }}
{{- if $v.auth.tokenKeys.existingSecret }}
- {name: token-keys, secret: {{ $v.auth.tokenKeys.existingSecret | quote }}, only: public-keys.json}
{{- else if $v.auth.tokenKeys.existingConfigMap }}
- {name: token-keys, configMap: {{ $v.auth.tokenKeys.existingConfigMap | quote }}}
{{- end }}
{{- end }}
{{- if $v.peerTls.enabled }}
- {name: peer-tls, secret: {{ include "braidmq.peerTlsSecret" . | quote }}}
{{- end }}
{{- if $v.peerKeys.enabled }}
- {name: peer-keys, secret: {{ include "braidmq.peerKeysSecret" . | quote }}}
{{- end }}
{{- if $v.zookeeper.auth.enabled }}
- {name: zookeeper-auth, secret: {{ include "braidmq.zookeeperAuthSecret" . | quote }}}
{{- end }}
{{- if and $v.zookeeper.tls.enabled $v.zookeeper.tls.existingSecret }}
- {name: zookeeper-tls, secret: {{ $v.zookeeper.tls.existingSecret | quote }}}
{{- end }}
{{- end -}}

{{/* How a pod of the chart reaches the brokers, as `mq` and the Python client read it: variables, mounts, volumes. */}}
{{- define "braidmq.client.env" -}}
- {name: BRAIDMQ_URL, value: {{ include "braidmq.url" . | quote }}}
{{- if .Values.tls.enabled }}
- {name: BRAIDMQ_CA, value: /etc/braidmq/client/ca.crt}
{{- if .Values.tls.clientCaSecret }}
- {name: BRAIDMQ_CLIENT_CERT, value: /etc/braidmq/client-cert/tls.crt}
- {name: BRAIDMQ_CLIENT_KEY, value: /etc/braidmq/client-cert/tls.key}
{{- end }}
{{- end }}
{{- if eq (include "braidmq.hasAdmin" .) "yes" }}
- {name: BRAIDMQ_TOKEN_FILE, value: /etc/braidmq/client-token/token}
{{- end }}
{{- end -}}
{{- define "braidmq.client.mounts" -}}
- {name: scratch, mountPath: /tmp}
{{- if .Values.store.existingClaim }}
- {name: store, mountPath: /store}
{{- end }}
{{- if .Values.tls.enabled }}
- {name: client, mountPath: /etc/braidmq/client, readOnly: true}
{{- if .Values.tls.clientCaSecret }}
- {name: client-cert, mountPath: /etc/braidmq/client-cert, readOnly: true}
{{- end }}
{{- end }}
{{- if include "braidmq.hasAdmin" . }}
- {name: client-token, mountPath: /etc/braidmq/client-token, readOnly: true}
{{- end }}
{{- end -}}
{{- define "braidmq.client.volumes" -}}
- {name: scratch, emptyDir: {}}
{{- with .Values.store.existingClaim }}
- {name: store, persistentVolumeClaim: {claimName: {{ . | quote }}}}
{{- end }}
{{- if .Values.tls.enabled }}
- {name: client, secret: {secretName: {{ include "braidmq.tlsSecret" . | quote }}, items: [{key: ca.crt, path: ca.crt}]}}
{{- if .Values.tls.clientCaSecret }}
- {name: client-cert, secret: {secretName: {{ .Values.tls.clientCertSecret | quote }}, defaultMode: 0440}}
{{- end }}
{{- end }}
{{- if include "braidmq.hasAdmin" . }}
- {name: client-token, secret: {secretName: {{ include "braidmq.adminSecret" . | quote }}, defaultMode: 0440, items: [{key: token, path: token}]}}
{{- end }}
{{- end -}}
{{- define "braidmq.client.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
{{- define "braidmq.client.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ int64 .Values.runAsUser }}
runAsGroup: {{ int64 .Values.runAsUser }}
fsGroup: {{ int64 .Values.runAsUser }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

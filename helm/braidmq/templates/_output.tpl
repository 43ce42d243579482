{{/*
Every resource goes through here: `text` is its YAML, to which its namespace, labels and annotations are added, and over
which the patch of that `name` is laid.
*/}}
{{- define "braidmq.output" -}}
{{- $made := fromYaml .text -}}
{{- if $made.Error -}}{{- fail (printf "%s: %s" .name $made.Error) -}}{{- end -}}
{{- $labels := merge (fromYaml (include "braidmq.labels" (dict "root" .root "component" .component))) .root.Values.commonLabels -}}
{{- $metadata := dict "namespace" .root.Release.Namespace "labels" $labels -}}
{{- with .root.Values.commonAnnotations -}}{{- $_ := set $metadata "annotations" (deepCopy .) -}}{{- end -}}
{{- $patch := deepCopy (index .root.Values.patches .name | default dict) -}}
{{- toYaml (mustMergeOverwrite (dict "metadata" $metadata) $made $patch) -}}
{{- end -}}

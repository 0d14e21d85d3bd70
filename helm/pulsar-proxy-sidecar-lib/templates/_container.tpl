{{- /* Parts of a container that the gateway and the sidecar have in common; ports and probes: _sidecar.tpl, and the gateway's _pod.tpl. */ -}}

{{- define "pulsar-proxy-lib.confDirectory" -}}/pulsar/conf{{- end -}}

{{- /* (dict "image" VALUES "version" TEXT) */ -}}
{{- define "pulsar-proxy-lib.image" -}}
{{- if .image.digest -}}{{ .image.repository }}@{{ .image.digest }}
{{- else -}}{{ .image.repository }}:{{ .image.tag | default .version }}
{{- end -}}
{{- end -}}

{{- /* (dict "settings" S "memory" VALUES "resources" VALUES): memory requested is memory allowed, so nobody else's is taken. */ -}}
{{- define "pulsar-proxy-lib.resources" -}}
{{- $memory := include "pulsar-proxy-lib.memory" . -}}
{{- range $kind := list "requests" "limits" -}}
  {{- if hasKey (get $.resources $kind | default dict) "memory" -}}
    {{- fail (printf "resources.%s.memory: got %v, expected it in memory.limit: request and limit are the same" $kind (get $.resources $kind).memory) -}}
  {{- end -}}
{{- end -}}
requests:
  {{- merge (dict "memory" $memory) (.resources.requests | default dict) | toYaml | nindent 2 }}
limits:
  {{- merge (dict "memory" $memory) (.resources.limits | default dict) | toYaml | nindent 2 }}
{{- end -}}

{{- /* Compare versions of Kubernetes: (dict "version" VALUE "root" $ "range" TEXT) gives `true` or nothing. */ -}}
{{- define "pulsar-proxy-lib.kubeVersionIs" -}}
{{- if semverCompare .range (include "pulsar-proxy-lib.kubeVersion" .) -}}true{{- end -}}
{{- end -}}

{{- define "pulsar-proxy-lib.kubeVersion" -}}
{{- .version | default .root.Capabilities.KubeVersion.Version -}}
{{- end -}}

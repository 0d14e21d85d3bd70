{{- /* Secrets that stand in plain text where many may read: in the ConfigMap, or in the environment of the pod's manifest. */ -}}

{{- /* `true` if TEXT of (dict "about" ABOUT "text" TEXT) has a secret in it: not its file, and no variable in its place. */ -}}
{{- define "pulsar-proxy-lib.isPlainSecret" -}}
{{- $text := regexReplaceAll "\\$(\\{[A-Za-z0-9_]+\\}|\\([A-Za-z0-9_]+\\))" .text "" | trim -}}
{{- $secret := get (.about | default dict) "secret" -}}
{{- if regexMatch "://[^/\\s:@]*:[^\\s@]+@" $text -}}true
{{- else if and $secret (hasPrefix "{" $text) -}}
  {{- if regexMatch "(?i)(\"(password|token|secret)\"\\s*:\\s*\"[^\"]+\"|data:)" $text -}}true{{- end -}}
{{- else if and $secret (not (regexMatch "^($|file:|/|env:|token:$|tls[A-Za-z]+File:)" $text)) -}}true
{{- end -}}
{{- end -}}

{{- /* The line of NOTES that names them, or nothing: (dict "settings" S "env" LIST). */ -}}
{{- define "pulsar-proxy-lib.plainSecretsNote" -}}
{{- $found := list -}}
{{- range $key, $text := .settings.file -}}
  {{- if include "pulsar-proxy-lib.isPlainSecret" (dict "about" (get $.settings.table.keys $key) "text" $text) -}}
    {{- $found = append $found (printf "configData.%s" $key) -}}
  {{- end -}}
{{- end -}}
{{- range $key, $text := .settings.env -}}
  {{- if include "pulsar-proxy-lib.isPlainSecret" (dict "about" (dict "secret" (hasSuffix "_HEADERS" $key)) "text" $text) -}}
    {{- $found = append $found (printf "configData.%s" $key) -}}
  {{- end -}}
{{- end -}}
{{- range .env -}}
  {{- $about := get $.settings.table.keys (trimPrefix "PULSAR_PREFIX_" .name) -}}
  {{- if include "pulsar-proxy-lib.isPlainSecret" (dict "about" $about "text" (.value | default "" | toString)) -}}
    {{- $found = append $found (printf "extraEnvs %s" .name) -}}
  {{- end -}}
{{- end -}}
{{- with $found | uniq -}}
Secrets in plain text, for all who may read ConfigMaps and Deployments of this namespace: {{ join ", " . }}. Write ${NAME} in configData and set NAME in extraEnvs from a Secret (valueFrom.secretKeyRef), or mount the Secret and name its file.
{{- end -}}
{{- end -}}

{{- /* With an ending for each part: a CronJob has 52 characters at most. */ -}}
{{- define "pulsar-proxy.pipeline.name" -}}{{ include "pulsar-proxy.fullname" . | trunc 31 | trimSuffix "-" }}-pipeline{{- end -}}

{{- /* (dict "root" $ "component" NAME) */ -}}
{{- define "pulsar-proxy.pipeline.matchLabels" -}}
app.kubernetes.io/name: pulsar-proxy-pipeline
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "pulsar-proxy.pipeline.labels" -}}
{{ include "pulsar-proxy.pipeline.matchLabels" . }}
app.kubernetes.io/part-of: pulsar-proxy-sidecar
{{- end -}}

{{- define "pulsar-proxy.pipeline.image" -}}
{{- include "pulsar-proxy-lib.image" (dict "image" .Values.pipeline.image "version" .Chart.AppVersion) -}}
{{- end -}}

{{- define "pulsar-proxy.pipeline.settings" -}}
{{- include "pulsar-proxy-lib.settings" (dict "base" (include "pulsar-proxy.base" . | fromJson) "configData" .Values.configData) -}}
{{- end -}}

{{- /* The topic as a source: pulsar://broker:6650/tenant/namespace/topic. */ -}}
{{- define "pulsar-proxy.pipeline.source" -}}
{{- if .Values.pipeline.source -}}{{ .Values.pipeline.source }}
{{- else -}}
  {{- $s := include "pulsar-proxy.pipeline.settings" . | fromJson -}}
  {{- $topic := include "pulsar-proxy-lib.value" (dict "settings" $s "key" "eventLogTopic") | trimPrefix "persistent://" -}}
  {{- $url := include "pulsar-proxy-lib.value" (dict "settings" $s "key" "eventLogTopicServiceURL") -}}
  {{- $key := ternary "brokerServiceURLTLS" "brokerServiceURL" (eq (include "pulsar-proxy-lib.true" (dict "settings" $s "key" "tlsEnabledWithBroker")) "true") -}}
  {{- $url = $url | default (include "pulsar-proxy-lib.value" (dict "settings" $s "key" $key)) -}}
  {{- if not (and $topic $url) -}}{{- fail "pipeline.source: got nothing, expected pulsar://host:port/tenant/namespace/topic, or configData.eventLogTopic to derive it from" -}}{{- end -}}
  {{- printf "%s/%s" (trimSuffix "/" $url) $topic -}}
{{- end -}}
{{- end -}}

{{- define "pulsar-proxy.pipeline.adminUrl" -}}
{{- if .Values.pipeline.adminUrl -}}{{ .Values.pipeline.adminUrl }}
{{- else -}}
  {{- $s := include "pulsar-proxy.pipeline.settings" . | fromJson -}}
  {{- $key := ternary "brokerWebServiceURLTLS" "brokerWebServiceURL" (eq (include "pulsar-proxy-lib.true" (dict "settings" $s "key" "tlsEnabledWithBroker")) "true") -}}
  {{- $url := include "pulsar-proxy-lib.value" (dict "settings" $s "key" $key) -}}
  {{- if include "pulsar-proxy-lib.value" (dict "settings" $s "key" "eventLogTopicServiceURL") -}}{{- fail "pipeline.adminUrl: got nothing, expected http://host:port of the cluster in configData.eventLogTopicServiceURL" -}}{{- end -}}
  {{- if not $url -}}{{- fail "pipeline.adminUrl: got nothing, expected http://host:port, or configData.brokerWebServiceURL to derive it from" -}}{{- end -}}
  {{- first (splitList "," $url) -}}
{{- end -}}
{{- end -}}

{{- define "pulsar-proxy.pipeline.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "pulsar-proxy.pipeline.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "pulsar-proxy.pipeline.claim" -}}
{{- .Values.pipeline.storage.existingClaim | default (include "pulsar-proxy.pipeline.name" .) -}}
{{- end -}}

{{- /* The volume is ReadWriteOnce and the ingest pod has it all the time: only on its node can it be had, too. */ -}}
{{- define "pulsar-proxy.pipeline.besideIngest" -}}
podAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    - topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          {{- include "pulsar-proxy.pipeline.matchLabels" (dict "root" . "component" "ingest") | nindent 10 }}
{{- end -}}

{{- /*
A proxy beside an application. Each template takes (dict "root" $ "values" .Values.ALIAS), where ALIAS is that of the
dependency on this chart; helm/examples/orders shows all of them in use.
*/ -}}

{{- define "pulsar-proxy-sidecar.name" -}}
{{- printf "%s-%s-pulsar-proxy" .root.Release.Name .root.Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* What the chart itself sets; `configData` goes over it, but not over what makes it a sidecar. */ -}}
{{- define "pulsar-proxy-sidecar.settings" -}}
{{- $v := .values -}}
{{- $base := dict "servicePort" $v.port "webServicePort" $v.webPort "proxyRole" "sidecar" "shutdownDrainMillis" 15000 -}}
{{- $_ := set $base "bindAddress" (ternary "0.0.0.0" "127.0.0.1" $v.exposed) -}}
{{- if $v.metricsPort -}}
  {{- $_ := set $base "metricsPort" $v.metricsPort -}}
  {{- $_ := set $base "metricsBindAddress" $v.metricsBindAddress -}}
{{- end -}}
{{- if $v.tls.broker.enabled -}}
  {{- $_ := set $base "tlsEnabledWithBroker" true -}}
  {{- if $v.tls.broker.caSecretName -}}{{- $_ := set $base "brokerClientTrustCertsFilePath" "/pulsar/certs/broker-ca/ca.crt" -}}{{- end -}}
{{- end -}}
{{- if $v.auth.token.proxySecretName -}}
  {{- $_ := set $base "brokerClientAuthenticationPlugin" "token" -}}
  {{- $_ := set $base "brokerClientAuthenticationParameters" "file:///pulsar/tokens/proxy/token" -}}
{{- end -}}
{{- if $v.spill.enabled -}}{{- $_ := set $base "topicListSpillDirectory" (include "pulsar-proxy-lib.spillDirectory" .) -}}{{- end -}}
{{- range $key, $value := include "pulsar-proxy-sidecar.ownKeys" . | fromJson -}}
  {{- range $name := list $key (printf "PULSAR_PREFIX_%s" $key) -}}
    {{- if hasKey $v.configData $name -}}
      {{- fail (printf "configData.%s: got %s, expected %s" $key (ternary "an empty value" "a value" (eq (toString (get $v.configData $name)) "")) $value) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $settings := include "pulsar-proxy-lib.settings" (dict "base" $base "configData" $v.configData) | fromJson -}}
{{- $urls := ternary "brokerServiceURLTLS" "brokerServiceURL" (eq (include "pulsar-proxy-lib.true" (dict "settings" $settings "key" "tlsEnabledWithBroker")) "true") -}}
{{- if not (include "pulsar-proxy-lib.value" (dict "settings" $settings "key" $urls)) -}}
  {{- fail (printf "configData.%s: got nothing, expected the brokers, such as pulsar://pulsar-broker:6650" $urls) -}}
{{- end -}}
{{- include "pulsar-proxy-lib.checkEnv" (dict "settings" $settings "env" $v.extraEnvs) -}}
{{- include "pulsar-proxy-lib.checkSpill" (dict "spill" $v.spill "configData" $v.configData) -}}
{{- toJson $settings -}}
{{- end -}}

{{- /* Keys that a value of this chart stands for. */ -}}
{{- define "pulsar-proxy-sidecar.ownKeys" -}}
{"servicePort": "`port`", "webServicePort": "`webPort`", "bindAddress": "`exposed`", "metricsPort": "`metricsPort` beside configData", "metricsBindAddress": "`metricsBindAddress` beside configData", "proxyRole": "none: it is a sidecar"}
{{- end -}}

{{- /* For `initContainers` of the pod: the native form, else nothing. */ -}}
{{- define "pulsar-proxy-sidecar.initContainers" -}}
{{- if eq .values.mode "native" -}}
{{- if not (include "pulsar-proxy-lib.kubeVersionIs" (dict "version" .values.kubeVersion "root" .root "range" ">=1.28.0-0")) -}}
  {{- fail (printf "mode: got native with Kubernetes %s, expected plain: init containers that restart came with 1.28 (on by default from 1.29)" (include "pulsar-proxy-lib.kubeVersion" (dict "version" .values.kubeVersion "root" .root))) -}}
{{- end -}}
{{ include "pulsar-proxy-sidecar.container" . }}
{{- end -}}
{{- end -}}

{{- /* For `containers` of the pod: the plain form, else nothing. */ -}}
{{- define "pulsar-proxy-sidecar.containers" -}}
{{- if eq .values.mode "plain" -}}
{{ include "pulsar-proxy-sidecar.container" . }}
{{- end -}}
{{- end -}}

{{- /* The container itself, an item of a list, in the form that `mode` names. */ -}}
{{- define "pulsar-proxy-sidecar.container" -}}
{{- $v := .values -}}
{{- $settings := include "pulsar-proxy-sidecar.settings" . | fromJson -}}
- name: {{ $v.containerName }}
  image: {{ include "pulsar-proxy-lib.image" (dict "image" $v.image "version" (include "pulsar-proxy-lib.version" .)) | quote }}
  imagePullPolicy: {{ $v.image.pullPolicy }}
  {{- if eq $v.mode "native" }}
  restartPolicy: Always
  {{- end }}
  command: [pulsar-proxy]
  args: [serve, --config, {{ include "pulsar-proxy-lib.confDirectory" . }}/proxy.conf]
  {{- with include "pulsar-proxy-lib.env" (dict "settings" $settings "extra" $v.extraEnvs) }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $v.extraEnvFrom }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if or $v.exposed $v.metricsPort }}
  ports:
    {{- if $v.exposed }}
    - name: pulsar-web
      containerPort: {{ $v.webPort }}
    {{- end }}
    {{- if $v.metricsPort }}
    - name: pulsar-metrics
      containerPort: {{ $v.metricsPort }}
    {{- end }}
  {{- end }}
  {{- if eq $v.mode "native" }}
  # The application is started when this has succeeded; the plain form has nothing to hold back.
  startupProbe:
    {{- include "pulsar-proxy-sidecar.probe" (dict "values" $v "path" "/readyz") | nindent 4 }}
    periodSeconds: 1
    timeoutSeconds: 5
    failureThreshold: 120
  {{- end }}
  livenessProbe:
    {{- include "pulsar-proxy-sidecar.probe" (dict "values" $v "path" "/healthz") | nindent 4 }}
    periodSeconds: 30
    timeoutSeconds: 5
    failureThreshold: 4
  readinessProbe:
    {{- include "pulsar-proxy-sidecar.probe" (dict "values" $v "path" "/readyz") | nindent 4 }}
    periodSeconds: 10
    timeoutSeconds: 5
  resources:
    {{- include "pulsar-proxy-lib.resources" (dict "settings" $settings "memory" (include "pulsar-proxy-sidecar.memory" . | fromJson) "resources" $v.resources) | nindent 4 }}
  securityContext:
    {{- toYaml $v.securityContext | nindent 4 }}
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
    - name: pulsar-proxy-config
      mountPath: {{ include "pulsar-proxy-lib.confDirectory" . }}
      readOnly: true
    - name: pulsar-proxy-tmp
      mountPath: /tmp
    {{- if $v.auth.token.proxySecretName }}
    - name: pulsar-proxy-token
      mountPath: /pulsar/tokens
      readOnly: true
    {{- end }}
    {{- if and $v.tls.broker.enabled $v.tls.broker.caSecretName }}
    - name: pulsar-proxy-broker-ca
      mountPath: /pulsar/certs/broker-ca
      readOnly: true
    {{- end }}
    {{- if $v.spill.enabled }}
    - name: pulsar-proxy-lists
      mountPath: {{ include "pulsar-proxy-lib.spillMount" . }}
    {{- end }}
    {{- with $v.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- /* The port of the pod's address that probes and Prometheus ask; 0: none. */ -}}
{{- define "pulsar-proxy-sidecar.askedPort" -}}
{{- if .values.metricsPort -}}{{ .values.metricsPort }}{{- else if .values.exposed -}}{{ .values.webPort }}{{- else -}}0{{- end -}}
{{- end -}}

{{- /* `memory`, with room for a second command where probes are commands: two may run at once. */ -}}
{{- define "pulsar-proxy-sidecar.memory" -}}
{{- $memory := deepCopy .values.memory -}}
{{- if eq (include "pulsar-proxy-sidecar.askedPort" .) "0" -}}
  {{- $_ := set $memory "extra" (printf "%d" (add (int64 (include "pulsar-proxy-lib.bytes" $memory.extra)) 25165824)) -}}
{{- end -}}
{{- toJson $memory -}}
{{- end -}}

{{- /* Who is asked from outside the pod cannot be on its loopback: there a command in the container asks. */ -}}
{{- define "pulsar-proxy-sidecar.probe" -}}
{{- $port := include "pulsar-proxy-sidecar.askedPort" . -}}
{{- if ne $port "0" -}}
httpGet:
  path: {{ .path }}
  port: {{ $port }}
{{- else -}}
exec:
  command: [pulsar-proxy, health, --config, {{ include "pulsar-proxy-lib.confDirectory" . }}/proxy.conf]
{{- end -}}
{{- end -}}

{{- /* For `volumes` of the pod. */ -}}
{{- define "pulsar-proxy-sidecar.volumes" -}}
- name: pulsar-proxy-config
  configMap:
    name: {{ include "pulsar-proxy-sidecar.name" . }}
- name: pulsar-proxy-tmp
  emptyDir:
    sizeLimit: 16Mi
{{- if .values.spill.enabled }}
{{- $settings := include "pulsar-proxy-sidecar.settings" . | fromJson }}
- name: pulsar-proxy-lists
  {{- include "pulsar-proxy-lib.spillVolume" (dict "settings" $settings "spill" .values.spill) | fromJson | toYaml | nindent 2 }}
{{- end }}
{{- with .values.auth.token.proxySecretName }}
- name: pulsar-proxy-token
  secret:
    secretName: {{ . }}
    items:
      - key: TOKEN
        path: proxy/token
{{- end }}
{{- if and .values.tls.broker.enabled .values.tls.broker.caSecretName }}
- name: pulsar-proxy-broker-ca
  secret:
    secretName: {{ .values.tls.broker.caSecretName }}
    items:
      - key: ca.crt
        path: ca.crt
{{- end }}
{{- end -}}

{{- /* For `annotations` of the pod: it is restarted when a key changes that needs it. */ -}}
{{- define "pulsar-proxy-sidecar.annotations" -}}
{{- $settings := include "pulsar-proxy-sidecar.settings" . | fromJson -}}
checksum/pulsar-proxy: {{ include "pulsar-proxy-lib.checksum" (dict "settings" $settings "always" false) }}
{{- $port := include "pulsar-proxy-sidecar.askedPort" . }}
{{- if ne $port "0" }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ $port | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- end -}}

{{- /* The ConfigMap, a manifest of its own. */ -}}
{{- define "pulsar-proxy-sidecar.configMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "pulsar-proxy-sidecar.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    app.kubernetes.io/instance: {{ .root.Release.Name }}
    app.kubernetes.io/component: pulsar-proxy
    app.kubernetes.io/managed-by: {{ .root.Release.Service }}
data:
  proxy.conf: |
    {{- include "pulsar-proxy-lib.file" (include "pulsar-proxy-sidecar.settings" . | fromJson) | nindent 4 }}
{{- end -}}

{{- /*
`terminationGracePeriodSeconds` of the pod, of which the application needs `applicationSeconds` (beside root and values). A native
sidecar is told when the application has ended, a plain one at the same time.
*/ -}}
{{- define "pulsar-proxy-sidecar.graceSeconds" -}}
{{- $settings := include "pulsar-proxy-sidecar.settings" (dict "root" .root "values" .values) | fromJson -}}
{{- $own := int64 (include "pulsar-proxy-lib.graceSeconds" (dict "settings" $settings)) -}}
{{- $application := int64 .applicationSeconds -}}
{{- $drain := int64 (include "pulsar-proxy-lib.value" (dict "settings" $settings "key" "shutdownDrainMillis")) -}}
{{- if and (eq .values.mode "plain") (lt $drain (mul 1000 $application)) -}}
  {{- fail (printf "configData.shutdownDrainMillis: got %d, expected at least %d: a plain sidecar is told to stop with its application" $drain (mul 1000 $application)) -}}
{{- end -}}
{{- if eq .values.mode "native" -}}{{ add $application $own }}{{- else -}}{{ max $application $own }}{{- end -}}
{{- end -}}

{{- /* For NOTES.txt of the application: what its operator should know of the proxy's values, else nothing. */ -}}
{{- define "pulsar-proxy-sidecar.notes" -}}
{{- $settings := include "pulsar-proxy-sidecar.settings" . | fromJson -}}
{{- include "pulsar-proxy-lib.plainSecretsNote" (dict "settings" $settings "env" .values.extraEnvs) -}}
{{- end -}}

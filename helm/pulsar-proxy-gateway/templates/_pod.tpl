{{- /* Annotations of the pod: (dict "root" $ "settings" S); the operator's own go over the chart's. */ -}}
{{- define "pulsar-proxy.podAnnotations" -}}
{{- $v := .root.Values -}}
{{- $all := dict "kubectl.kubernetes.io/default-container" "proxy" -}}
{{- $restart := $v.restartPodsOnConfigMapChange | toString -}}
{{- if not (has $restart (list "never" "false")) -}}
  {{- $_ := set $all "checksum/config" (include "pulsar-proxy-lib.checksum" (dict "settings" .settings "always" (has $restart (list "always" "true")))) -}}
{{- end -}}
{{- if not (or $v.podMonitor.enabled $v.serviceMonitor.enabled) -}}
  {{- /* As in Pulsar's chart, for a Prometheus without the operator. */ -}}
  {{- $_ := set $all "prometheus.io/scrape" "true" -}}
  {{- $_ := set $all "prometheus.io/port" (include "pulsar-proxy-lib.value" (dict "settings" .settings "key" (ternary "metricsPort" "webServicePort" (eq (include "pulsar-proxy.askedPort" .) "metrics")))) -}}
{{- end -}}
{{- merge (dict) ($v.annotations | default dict) $all | toYaml -}}
{{- end -}}

{{- /* Seconds until a pod is killed: (dict "root" $ "settings" S). A sleep before SIGTERM counts; how long another hook
takes, the chart cannot know. */ -}}
{{- define "pulsar-proxy.graceSeconds" -}}
{{- add (dig "preStop" "sleep" "seconds" 0 .root.Values.lifecycle) (include "pulsar-proxy-lib.graceSeconds" (dict "settings" .settings)) -}}
{{- end -}}

{{- /* The pod of the gateway: (dict "root" $ "settings" S). */ -}}
{{- define "pulsar-proxy.podSpec" -}}
{{- $v := .root.Values -}}
serviceAccountName: {{ include "pulsar-proxy.serviceAccount" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
# `lifecycle.preStop.sleep`, not ready, the drain, then 5 s: shutdownPreDrainMillis + shutdownDrainMillis, rounded up.
terminationGracePeriodSeconds: {{ include "pulsar-proxy.graceSeconds" . }}
securityContext:
  {{- toYaml $v.podSecurityContext | nindent 2 }}
{{- with $v.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- range $name := list "schedulerName" "runtimeClassName" }}
{{- with get $v $name }}
{{ $name }}: {{ . }}
{{- end }}
{{- end }}
{{- if $v.hostNetwork }}
hostNetwork: true
{{- end }}
{{- with $v.dnsPolicy | default (ternary "ClusterFirstWithHostNet" "" $v.hostNetwork) }}
dnsPolicy: {{ . }}
{{- end }}
{{- with $v.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- include "pulsar-proxy.spread" .root | trim | nindent 2 }}
{{- with $v.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  {{- include "pulsar-proxy.container" . | nindent 2 }}
  {{- with $v.extraContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes:
  {{- include "pulsar-proxy.volumes" . | trim | nindent 2 }}
{{- end -}}

{{- define "pulsar-proxy.spread" -}}
{{- if .Values.topologySpreadConstraints -}}
{{ toYaml .Values.topologySpreadConstraints }}
{{- else -}}
{{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- topologyKey: {{ $key }}
  maxSkew: 1
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "pulsar-proxy.matchLabels" $ | nindent 6 }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "pulsar-proxy.container" -}}
{{- $v := .root.Values -}}
- name: proxy
  image: {{ include "pulsar-proxy-lib.image" (dict "image" $v.image "version" .root.Chart.AppVersion) | quote }}
  imagePullPolicy: {{ $v.image.pullPolicy }}
  command: [pulsar-proxy]
  args: [serve, --config, {{ include "pulsar-proxy-lib.confDirectory" . }}/proxy.conf]
  {{- with include "pulsar-proxy-lib.env" (dict "settings" .settings "extra" $v.extraEnvs) }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $v.extraEnvFrom }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    {{- range (include "pulsar-proxy.ports" . | fromJson).ports }}
    - name: {{ .name }}
      containerPort: {{ .container }}
      protocol: TCP
    {{- end }}
  {{- range $name, $path := dict "startup" "/readyz" "liveness" "/healthz" "readiness" "/readyz" }}
  {{- $probe := get $v.probe $name }}
  {{- if $probe.enabled }}
  {{ $name }}Probe:
    httpGet:
      path: {{ $path }}
      port: {{ include "pulsar-proxy.askedPort" $ }}
    {{- omit $probe "enabled" | toYaml | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with $v.lifecycle }}
  lifecycle:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  resources:
    {{- include "pulsar-proxy-lib.resources" (dict "settings" .settings "memory" $v.memory "resources" $v.resources) | nindent 4 }}
  securityContext:
    {{- toYaml $v.securityContext | nindent 4 }}
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
    {{- range (include "pulsar-proxy.mounts" . | fromJson).mounts }}
    - {{ dict "name" .name "mountPath" .path "readOnly" .readOnly | toYaml | nindent 6 | trim }}
    {{- end }}
    {{- with $v.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- /* Volumes and where they are mounted, as JSON: paths and keys of secrets are those of Pulsar's chart. */ -}}
{{- define "pulsar-proxy.mounts" -}}
{{- $v := .root.Values -}}
{{- $conf := dict "name" "config" "path" (include "pulsar-proxy-lib.confDirectory" .) "readOnly" true "source" (dict "configMap" (dict "name" (include "pulsar-proxy.fullname" .root))) -}}
{{- $mounts := list $conf (dict "name" "tmp" "path" "/tmp" "readOnly" false "source" (dict "emptyDir" (dict "sizeLimit" "64Mi"))) -}}
{{- if $v.tls.enabled -}}
  {{- $mounts = append $mounts (dict "name" "proxy-certs" "path" "/pulsar/certs/proxy" "readOnly" true
    "source" (dict "secret" (dict "secretName" (include "pulsar-proxy.tlsSecret" .root) "items" (list (dict "key" "tls.crt" "path" "tls.crt") (dict "key" "tls.key" "path" "tls.key"))))) -}}
  {{- if $v.tls.caSecretName -}}
    {{- $mounts = append $mounts (dict "name" "ca" "path" "/pulsar/certs/ca" "readOnly" true
      "source" (dict "secret" (dict "secretName" $v.tls.caSecretName "items" (list (dict "key" "ca.crt" "path" "ca.crt"))))) -}}
  {{- end -}}
{{- end -}}
{{- if and $v.tls.broker.enabled $v.tls.broker.caSecretName -}}
  {{- $mounts = append $mounts (dict "name" "broker-ca" "path" "/pulsar/certs/broker-ca" "readOnly" true
    "source" (dict "secret" (dict "secretName" $v.tls.broker.caSecretName "items" (list (dict "key" "ca.crt" "path" "ca.crt"))))) -}}
{{- end -}}
{{- if $v.auth.token.enabled -}}
  {{- $secret := eq $v.auth.token.key "secret" -}}
  {{- $name := include "pulsar-proxy.secret" (dict "root" .root "given" $v.auth.token.keySecretName "ending" (ternary "token-symmetric-key" "token-asymmetric-key" $secret) "value" "auth.token.keySecretName") -}}
  {{- $item := dict "key" (ternary "SECRETKEY" "PUBLICKEY" $secret) "path" (ternary "token/secret.key" "token/public.key" $secret) -}}
  {{- $mounts = append $mounts (dict "name" "token-keys" "path" "/pulsar/keys" "readOnly" true "source" (dict "secret" (dict "secretName" $name "items" (list $item)))) -}}
  {{- $own := include "pulsar-proxy.secret" (dict "root" .root "given" $v.auth.token.proxySecretName "ending" "token-proxy-admin" "value" "auth.token.proxySecretName") -}}
  {{- $mounts = append $mounts (dict "name" "proxy-token" "path" "/pulsar/tokens" "readOnly" true
    "source" (dict "secret" (dict "secretName" $own "items" (list (dict "key" "TOKEN" "path" "proxy/token"))))) -}}
{{- end -}}
{{- with include "pulsar-proxy-lib.value" (dict "settings" .settings "key" "eventLogDirectory") -}}
  {{- $mounts = append $mounts (dict "name" "events" "path" . "readOnly" false "source" (include "pulsar-proxy.eventVolume" $ | fromJson)) -}}
{{- end -}}
{{- if $v.spill.enabled -}}
  {{- $mounts = append $mounts (dict "name" "lists" "path" (include "pulsar-proxy-lib.spillMount" .) "readOnly" false
    "source" (include "pulsar-proxy-lib.spillVolume" (dict "settings" .settings "spill" $v.spill) | fromJson)) -}}
{{- end -}}
{{- dict "mounts" $mounts | toJson -}}
{{- end -}}

{{- /* Event files: as large as they may get together, and the one that is written beside them, of 64 MiB at most. */ -}}
{{- define "pulsar-proxy.eventVolume" -}}
{{- $v := .root.Values.eventLog -}}
{{- $total := int64 (include "pulsar-proxy-lib.int" (dict "settings" .settings "key" "eventLogFilesMaxTotalMB")) -}}
{{- if $v.volume -}}{{ toJson $v.volume }}
{{- else if $v.sizeLimit -}}{{ dict "emptyDir" (dict "sizeLimit" $v.sizeLimit) | toJson }}
{{- else if $total -}}{{ dict "emptyDir" (dict "sizeLimit" (printf "%dMi" (add $total 128))) | toJson }}
{{- else -}}{{- fail "configData.eventLogFilesMaxTotalMB: got 0 (nobody deletes files), expected a limit, or eventLog.volume: an emptyDir without one fills the node" -}}
{{- end -}}
{{- end -}}

{{- define "pulsar-proxy.volumes" -}}
{{- range (include "pulsar-proxy.mounts" . | fromJson).mounts }}
- name: {{ .name }}
  {{- toYaml .source | nindent 2 }}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

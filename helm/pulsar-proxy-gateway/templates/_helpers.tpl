{{- define "pulsar-proxy.fullname" -}}
{{- $name := .Values.nameOverride | default "pulsar-proxy" -}}
{{- if .Values.fullnameOverride -}}{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if .Values.pulsar.release -}}{{ printf "%s-proxy" (include "pulsar-proxy.pulsar" .) | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- /* The name that apache/pulsar-helm-chart gives its own objects. */ -}}
{{- define "pulsar-proxy.pulsar" -}}
{{- $p := .Values.pulsar -}}
{{- if $p.fullnameOverride -}}{{ $p.fullnameOverride }}
{{- else if contains "pulsar" $p.release -}}{{ $p.release }}
{{- else -}}{{ printf "%s-pulsar" $p.release }}
{{- end -}}
{{- end -}}

{{- define "pulsar-proxy.matchLabels" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
component: proxy
{{- end -}}

{{- define "pulsar-proxy.labels" -}}
{{ include "pulsar-proxy.commonLabels" . }}
app.kubernetes.io/component: proxy
component: proxy
{{- end -}}

{{- /* Labels of the pods: the versions of chart and proxy are left out, so that a newer chart alone replaces no pod. */ -}}
{{- define "pulsar-proxy.podLabels" -}}
{{- $own := omit (include "pulsar-proxy.labels" . | fromYaml) "app.kubernetes.io/version" "helm.sh/chart" -}}
{{- merge $own .Values.podLabels | toYaml -}}
{{- end -}}

{{- define "pulsar-proxy.commonLabels" -}}
{{- range $name := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "app.kubernetes.io/component" "component" "helm.sh/chart" -}}
  {{- if hasKey $.Values.commonLabels $name -}}
    {{- fail (printf "commonLabels: got %s, expected labels that the chart does not set itself" $name) -}}
  {{- end -}}
{{- end -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "pulsar-proxy.namespace" -}}{{ .Values.namespaceOverride | default .Release.Namespace }}{{- end -}}

{{- define "pulsar-proxy.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}{{ .Values.serviceAccount.name | default (include "pulsar-proxy.fullname" .) }}
{{- else -}}{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- /* A secret's name: what the operator says, else that of Pulsar's release: (dict "root" $ "given" NAME "ending" TEXT "value" PATH) */ -}}
{{- define "pulsar-proxy.secret" -}}
{{- if .given -}}{{ .given }}
{{- else if .root.Values.pulsar.release -}}{{ .root.Values.pulsar.release }}-{{ .ending }}
{{- else -}}{{- fail (printf "%s: got nothing, expected the name of a secret, or pulsar.release to derive it from" .value) -}}
{{- end -}}
{{- end -}}

{{- define "pulsar-proxy.tlsSecret" -}}
{{- if and .Values.certificate.enabled (not .Values.tls.secretName) -}}{{ include "pulsar-proxy.fullname" . }}-tls
{{- else -}}{{ include "pulsar-proxy.secret" (dict "root" . "given" .Values.tls.secretName "ending" "tls-proxy" "value" "tls.secretName") }}
{{- end -}}
{{- end -}}

{{- /* What values other than configData say, as keys of proxy.conf; configData goes over them. */ -}}
{{- define "pulsar-proxy.base" -}}
{{- $v := .Values -}}
{{- $base := dict "webServicePort" $v.ports.containerPorts.http "servicePort" $v.ports.pulsar -}}
{{- if $v.pulsar.release -}}
  {{- $pulsar := include "pulsar-proxy.pulsar" . -}}
  {{- $_ := set $base "clusterName" $pulsar -}}
  {{- if $v.tls.broker.enabled -}}
    {{- $_ := set $base "brokerServiceURLTLS" (printf "pulsar+ssl://%s-broker:6651" $pulsar) -}}
    {{- $_ := set $base "brokerWebServiceURLTLS" (printf "https://%s-broker:8443" $pulsar) -}}
  {{- else -}}
    {{- $_ := set $base "brokerServiceURL" (printf "pulsar://%s-broker:6650" $pulsar) -}}
    {{- $_ := set $base "brokerWebServiceURL" (printf "http://%s-broker:8080" $pulsar) -}}
  {{- end -}}
{{- end -}}
{{- if $v.tls.enabled -}}
  {{- $_ := set $base "servicePort" "" -}}
  {{- $_ := set $base "servicePortTls" $v.ports.pulsarssl -}}
  {{- $_ := set $base "webServicePortTls" $v.ports.containerPorts.https -}}
  {{- $_ := set $base "tlsCertificateFilePath" "/pulsar/certs/proxy/tls.crt" -}}
  {{- $_ := set $base "tlsKeyFilePath" "/pulsar/certs/proxy/tls.key" -}}
  {{- if $v.tls.caSecretName -}}{{- $_ := set $base "tlsTrustCertsFilePath" "/pulsar/certs/ca/ca.crt" -}}{{- end -}}
{{- end -}}
{{- if $v.tls.broker.enabled -}}
  {{- $_ := set $base "tlsEnabledWithBroker" true -}}
  {{- if $v.tls.broker.caSecretName -}}{{- $_ := set $base "brokerClientTrustCertsFilePath" "/pulsar/certs/broker-ca/ca.crt" -}}{{- end -}}
{{- end -}}
{{- if $v.auth.token.enabled -}}
  {{- $_ := set $base "authenticationEnabled" true -}}
  {{- $_ := set $base "authenticationProviders" "org.apache.pulsar.broker.authentication.AuthenticationProviderToken" -}}
  {{- $_ := set $base "brokerClientAuthenticationPlugin" "org.apache.pulsar.client.impl.auth.AuthenticationToken" -}}
  {{- $_ := set $base "brokerClientAuthenticationParameters" "file:///pulsar/tokens/proxy/token" -}}
  {{- if eq $v.auth.token.key "secret" -}}{{- $_ := set $base "tokenSecretKey" "file:///pulsar/keys/token/secret.key" -}}
  {{- else -}}{{- $_ := set $base "tokenPublicKey" "file:///pulsar/keys/token/public.key" -}}
  {{- end -}}
{{- end -}}
{{- if not $v.auth.forwardCredentials -}}{{- $_ := set $base "forwardAuthorizationCredentials" false -}}{{- end -}}
{{- if $v.spill.enabled -}}{{- $_ := set $base "topicListSpillDirectory" (include "pulsar-proxy-lib.spillDirectory" .) -}}{{- end -}}
{{- toJson $base -}}
{{- end -}}

{{- define "pulsar-proxy.settings" -}}
{{- $settings := include "pulsar-proxy-lib.settings" (dict "base" (include "pulsar-proxy.base" . | fromJson) "configData" .Values.configData) | fromJson -}}
{{- $urls := ternary "brokerServiceURLTLS" "brokerServiceURL" (eq (include "pulsar-proxy-lib.true" (dict "settings" $settings "key" "tlsEnabledWithBroker")) "true") -}}
{{- if not (include "pulsar-proxy-lib.value" (dict "settings" $settings "key" $urls)) -}}
  {{- fail (printf "configData.%s: got nothing, expected the brokers (or pulsar.release, from which they follow)" $urls) -}}
{{- end -}}
{{- if ne (include "pulsar-proxy-lib.value" (dict "settings" $settings "key" "proxyRole") | lower) "gateway" -}}
  {{- fail "configData.proxyRole: got sidecar, expected gateway: beside an application use the library chart pulsar-proxy-sidecar-lib" -}}
{{- end -}}
{{- if not (or (include "pulsar-proxy-lib.value" (dict "settings" $settings "key" "webServicePort")) (include "pulsar-proxy-lib.value" (dict "settings" $settings "key" "metricsPort"))) -}}
  {{- fail "configData.webServicePort: got nothing, expected a port, or configData.metricsPort: probes and metrics are there (the Service does not show it with tls.enabled)" -}}
{{- end -}}
{{- include "pulsar-proxy-lib.checkEnv" (dict "settings" $settings "env" .Values.extraEnvs) -}}
{{- include "pulsar-proxy-lib.checkSpill" (dict "spill" .Values.spill "configData" .Values.configData) -}}
{{- include "pulsar-proxy.checkReachable" (dict "root" . "settings" $settings) -}}
{{- include "pulsar-proxy.checkKnownBrokers" (dict "root" . "settings" $settings) -}}
{{- toJson $settings -}}
{{- end -}}

{{- /* Refuse addresses of the pod's own loopback, as (dict "root" $ "settings" S) has them: no probe and no client could reach them. */ -}}
{{- define "pulsar-proxy.checkReachable" -}}
{{- $seen := include "pulsar-proxy.seen" . | fromJson -}}
{{- range $key := list "bindAddress" "webBindAddress" "metricsBindAddress" -}}
  {{- $addresses := include "pulsar-proxy-lib.value" (dict "settings" $seen "key" $key) | trim | lower -}}
  {{- $reached := false -}}
  {{- range splitList "," $addresses -}}
    {{- if not (regexMatch "^(localhost|127[.][0-9.]+|\\[?::1\\]?)$" (trim .)) -}}{{- $reached = true -}}{{- end -}}
  {{- end -}}
  {{- if not $reached -}}
    {{- fail (printf "configData.%s: got %s, expected an address that clients and the kubelet reach, such as 0.0.0.0 or ::; beside an application use the library chart pulsar-proxy-sidecar-lib" $key $addresses) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* The settings with the variables of extraEnvs over configData, as the proxy reads them (proxy/config/sources.py), as JSON: (dict "root" $
"settings" S). A text that only the cluster knows is "?": valueFrom, $(NAME), ${NAME} of extraEnvFrom. Variables that extraEnvFrom
itself names cannot be seen here, and NOTES.txt says so. */ -}}
{{- define "pulsar-proxy.seen" -}}
{{- $env := dict -}}
{{- range .root.Values.extraEnvs -}}
  {{- $text := .value | default "" | toString -}}
  {{- if or .valueFrom (contains "$(" $text) -}}{{- $text = "?" -}}{{- end -}}
  {{- $_ := set $env .name $text -}}
{{- end -}}
{{- $all := dict -}}
{{- range $key, $text := .settings.all -}}{{- $_ := set $all $key $text -}}{{- end -}}
{{- range $key, $_ := .settings.table.keys -}}
  {{- range $name := list $key (printf "PULSAR_PREFIX_%s" $key) -}}
    {{- if hasKey $env $name -}}{{- $_ := set $all $key (get $env $name) -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- range $key, $text := $all -}}
  {{- if and (hasPrefix "${" $text) (hasSuffix "}" $text) -}}
    {{- $other := $text | trimPrefix "${" | trimSuffix "}" -}}
    {{- $_ := set $all $key (get $env $other | default (ternary "" "?" (or (hasKey $env $other) (empty $.root.Values.extraEnvFrom)))) -}}
  {{- end -}}
{{- end -}}
{{- dict "all" $all "table" .settings.table | toJson -}}
{{- end -}}

{{- /* Refuse several pods of (dict "root" $ "settings" S) that would each know only the brokers of its own lookups, while the Service sends
a client's lookup to one pod and its connection to another: those of docs/adr/0022-known-brokers.md. */ -}}
{{- define "pulsar-proxy.checkKnownBrokers" -}}
{{- $s := .settings -}}
{{- $v := .root.Values -}}
{{- $pods := ternary $v.autoscaling.maxReplicas $v.replicaCount $v.autoscaling.enabled | int -}}
{{- $s = include "pulsar-proxy.seen" (dict "root" .root "settings" $s) | fromJson -}}
{{- $plugin := include "pulsar-proxy-lib.value" (dict "settings" $s "key" "brokerClientAuthenticationPlugin") -}}
{{- $short := $plugin | trim | trimPrefix "org.apache.pulsar.client.impl.auth." | lower -}}
{{- $secret := not (has $short (list "" "none" "disabled" "authenticationdisabled" "tls" "authenticationtls")) -}}
{{- if include "pulsar-proxy-lib.forwards" $s -}}{{- $secret = true -}}{{- end -}}
{{- $widened := or (include "pulsar-proxy-lib.true" (dict "settings" $s "key" "brokerProxyCredentialsToAnyTarget"))
  (include "pulsar-proxy-lib.true" (dict "settings" $s "key" "checkActiveBrokers")) -}}
{{- $tls := include "pulsar-proxy-lib.true" (dict "settings" $s "key" "tlsEnabledWithBroker") -}}
{{- $web := ternary "brokerWebServiceURLTLS" "brokerWebServiceURL" (eq $tls "true") -}}
{{- /* Brokers that authorize show their list to no role in their proxyRoles, where the role of a proxy that authenticates clients must be. */ -}}
{{- $authenticates := include "pulsar-proxy-lib.true" (dict "settings" $s "key" "authenticationEnabled") -}}
{{- $listed := and (not $authenticates) (include "pulsar-proxy-lib.value" (dict "settings" $s "key" $web)) -}}
{{- /* Pulsar's chart has a headless Service for its brokers: its name leads to all of them. */ -}}
{{- $urls := ternary "brokerServiceURLTLS" "brokerServiceURL" (eq $tls "true") -}}
{{- $headless := false -}}
{{- if $v.pulsar.release -}}
  {{- $headless = eq (get (include "pulsar-proxy.base" .root | fromJson) $urls | default "-") (include "pulsar-proxy-lib.value" (dict "settings" $s "key" $urls)) -}}
{{- end -}}
{{- $narrowed := false -}}
{{- range $key, $all := dict "brokerProxyAllowedHostNames" "[*?\\[\\]][^.]*$" "brokerProxyAllowedIPAddresses" "^[?]$|^([*]|0+-(255|[fF]{4}))([.:]([*]|0+-(255|[fF]{4})))*$|/(0+|0[.]0[.]0[.]0)$" -}}
  {{- $items := list -}}
  {{- range splitList "," (include "pulsar-proxy-lib.value" (dict "settings" $s "key" $key)) -}}
    {{- with trim . -}}{{- $items = append $items (regexMatch $all .) -}}{{- end -}}
  {{- end -}}
  {{- if and $items (not (has true $items)) -}}{{- $narrowed = true -}}{{- end -}}
{{- end -}}
{{- if and (gt $pods 1) $secret (not (or $widened $listed $narrowed $headless)) -}}
  {{- fail (printf "%s: got %d with secret credentials for brokers, expected 1, or a way for each pod to know the brokers that another looked up: %snarrow configData.brokerProxyAllowedHostNames or configData.brokerProxyAllowedIPAddresses, or, if configData.brokerServiceURL leads to every broker, set configData.checkActiveBrokers=true%s"
    (ternary "autoscaling.maxReplicas" "replicaCount" $v.autoscaling.enabled) $pods (ternary "" (printf "set configData.%s, " $web) (eq $authenticates "true"))
    (ternary (printf " (with authenticationEnabled configData.%s does not count: brokers that authorize show such a proxy no list)" $web) "" (eq $authenticates "true"))) -}}
{{- end -}}
{{- end -}}

{{- /* The ports of (dict "root" $ "settings" S), as JSON: name, port of the container, of the Service, whether the Service shows it. */ -}}
{{- define "pulsar-proxy.ports" -}}
{{- $v := .root.Values -}}
{{- $s := .settings -}}
{{- $ports := list -}}
{{- range list
    (dict "name" "http" "key" "webServicePort" "port" $v.ports.http "node" "http" "plain" true)
    (dict "name" (printf "%spulsar" $v.tcpPrefix) "key" "servicePort" "port" $v.ports.pulsar "node" "pulsar" "plain" true)
    (dict "name" "https" "key" "webServicePortTls" "port" $v.ports.https "node" "https" "plain" false)
    (dict "name" (printf "%spulsarssl" $v.tlsPrefix) "key" "servicePortTls" "port" $v.ports.pulsarssl "node" "pulsarssl" "plain" false)
    (dict "name" "metrics" "key" "metricsPort" "port" 0 "node" "metrics" "plain" false) -}}
  {{- $text := include "pulsar-proxy-lib.value" (dict "settings" $s "key" .key) -}}
  {{- if eq $text "0" -}}{{- fail (printf "configData.%s: got 0, expected a port that others can know" .key) -}}{{- end -}}
  {{- if $text -}}
    {{- $ports = append $ports (dict "name" .name "container" (int64 $text) "port" .port "nodePort" (toString (get $v.service.nodePorts .node))
      "shown" (not (or (and .plain $v.tls.enabled) (eq .name "metrics") (and (hasPrefix "http" .name) (not $v.service.web))))) -}}
  {{- end -}}
{{- end -}}
{{- range $item := splitList "," (include "pulsar-proxy-lib.value" (dict "settings" $s "key" "httpLookupPorts")) -}}
  {{- with trim $item -}}
    {{- $ends := splitList "-" . -}}
    {{- range $port := untilStep (int (first $ends)) (int (add1 (last $ends))) 1 -}}
      {{- $ports = append $ports (dict "name" (printf "lookup-%d" $port) "container" $port "port" $port "nodePort" "" "shown" true) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- dict "ports" $ports | toJson -}}
{{- end -}}

{{- /* The port that probes and monitors ask: (dict "settings" S). */ -}}
{{- define "pulsar-proxy.askedPort" -}}
{{- if include "pulsar-proxy-lib.value" (dict "settings" .settings "key" "metricsPort") -}}metrics{{- else -}}http{{- end -}}
{{- end -}}

{{- /* Ports that the proxy may connect to, for a NetworkPolicy, as JSON: those of configured URLs and those that clients may reach; none: all. */ -}}
{{- define "pulsar-proxy.brokerPorts" -}}
{{- $ports := list -}}
{{- $s := . -}}
{{- $texts := list -}}
{{- range $key, $text := .all -}}
  {{- if or (contains "URL" $key) (hasPrefix "httpReverseProxy." $key) -}}
    {{- range splitList "," $text -}}
      {{- $port := regexFind ":[0-9]+(/|$)" (trim .) | trimPrefix ":" | trimSuffix "/" -}}
      {{- if $port -}}{{- $texts = append $texts $port -}}
      {{- else if hasPrefix "https:" (trim .) -}}{{- $texts = append $texts "443" -}}
      {{- else if hasPrefix "http:" (trim .) -}}{{- $texts = append $texts "80" -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range list "brokerProxyAllowedTargetPorts" "brokerWebServiceAllowedTargetPorts" -}}
  {{- $texts = concat $texts (splitList "," (include "pulsar-proxy-lib.value" (dict "settings" $s "key" .))) -}}
{{- end -}}
{{- $any := false -}}
{{- range $texts | uniq -}}
  {{- $text := trim . -}}
  {{- if eq $text "*" -}}{{- $any = true -}}
  {{- else if $text -}}{{- $ports = append $ports (int64 $text) -}}
  {{- end -}}
{{- end -}}
{{- $list := list -}}
{{- if not $any -}}
  {{- range $ports | uniq | sortAlpha -}}{{- $list = append $list (dict "port" (int64 .) "protocol" "TCP") -}}{{- end -}}
{{- end -}}
{{- dict "ports" $list | toJson -}}
{{- end -}}

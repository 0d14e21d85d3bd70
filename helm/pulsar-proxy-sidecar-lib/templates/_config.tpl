{{- /*
The configuration that a values file asks for, as the proxy will read it.

Names: `pulsar-proxy-lib.*` is shared by the gateway chart and the sidecar's templates; `pulsar-proxy-sidecar.*` is what
applications include. Templates give text only, so structures travel as JSON.
*/ -}}

{{- /* A value of a values file as text of proxy.conf: numbers without exponents, nothing around it. */ -}}
{{- define "pulsar-proxy-lib.text" -}}
{{- if kindIs "string" . -}}{{ trim . }}
{{- else if kindIs "float64" . -}}{{- if eq (floor .) . -}}{{ printf "%.0f" . }}{{- else -}}{{ printf "%v" . }}{{- end -}}
{{- else -}}{{ toString . }}
{{- end -}}
{{- end -}}

{{- /*
Settings out of (dict "base" MAP "configData" MAP), the second over the first, as JSON:
{"all": everything, "file": what stands in proxy.conf, "env": what goes into the environment}. As in Pulsar's image,
PULSAR_PREFIX_x is x and beats it, and ${OTHER} is a variable of the environment, which a file cannot have.
*/ -}}
{{- define "pulsar-proxy-lib.settings" -}}
{{- $all := dict -}}
{{- $otel := dict -}}
{{- $prefixed := dict -}}
{{- $given := dict -}}
{{- /* Not by merging: a value that is blank, false or 0 must win, too. */ -}}
{{- range $source := list .base .configData -}}
  {{- range $key, $value := $source -}}{{- $_ := set $given $key $value -}}{{- end -}}
{{- end -}}
{{- range $key, $value := $given -}}
  {{- $text := include "pulsar-proxy-lib.text" $value -}}
  {{- if hasPrefix "OTEL_" $key -}}{{- $_ := set $otel $key $text -}}
  {{- else if hasPrefix "PULSAR_PREFIX_" $key -}}{{- $_ := set $prefixed (trimPrefix "PULSAR_PREFIX_" $key) $text -}}
  {{- else if not (hasPrefix "PULSAR_" $key) -}}{{- $_ := set $all $key $text -}}
  {{- end -}}
{{- end -}}
{{- range $key, $text := $prefixed -}}{{- $_ := set $all $key $text -}}{{- end -}}
{{- $table := include "pulsar-proxy-lib.table" . | fromJson -}}
{{- range $key, $text := $all -}}
  {{- include "pulsar-proxy-lib.check" (dict "key" $key "text" $text "about" (get $table.keys $key)) -}}
{{- end -}}
{{- $file := dict -}}
{{- $env := $otel -}}
{{- range $key, $text := $all -}}
  {{- if and (hasPrefix "${" $text) (hasSuffix "}" $text) -}}{{- $_ := set $env $key $text -}}
  {{- else -}}{{- $_ := set $file $key $text -}}
  {{- end -}}
{{- end -}}
{{- dict "all" $all "file" $file "env" $env "table" $table | toJson -}}
{{- end -}}

{{- /* What a JSON schema cannot see, or not say: the range of a number that is text, what a key that is gone kept. */ -}}
{{- define "pulsar-proxy-lib.check" -}}
{{- if and .about (hasKey .about "kept") -}}
  {{- if not (regexMatch .about.kept .text) -}}
    {{- fail (printf "configData.%s: got %q, expected no such key: %s" .key .text .about.instead) -}}
  {{- end -}}
{{- end -}}
{{- if and .about (hasKey .about "least") .text -}}
  {{- $whole := regexMatch "^-?[0-9]{1,15}$" .text -}}
  {{- if not (and $whole (ge (int64 .text) (int64 .about.least)) (le (int64 .text) (int64 .about.most))) -}}
    {{- fail (printf "configData.%s: got %q, expected a whole number from %d to %d" .key .text (int64 .about.least) (int64 .about.most)) -}}
  {{- end -}}
{{- end -}}
{{- if regexMatch "[\\r\\n]" .text -}}
  {{- fail (printf "configData.%s: got a line break, expected one line: write \\n" .key) -}}
{{- end -}}
{{- end -}}

{{- /* The value in force of (dict "settings" SETTINGS "key" NAME), as text: a blank number is its default. */ -}}
{{- define "pulsar-proxy-lib.value" -}}
{{- $about := get .settings.table.keys .key -}}
{{- if not $about -}}{{- fail (printf "%s: no key of this proxy" .key) -}}{{- end -}}
{{- $text := get .settings.all .key | default "" -}}
{{- if not (hasKey .settings.all .key) -}}{{ $about.default }}
{{- else if and (eq $text "") $about.blankIsDefault -}}{{ $about.default }}
{{- else -}}{{ $text }}
{{- end -}}
{{- end -}}

{{- /* The same of a boolean: `true`, or nothing. */ -}}
{{- define "pulsar-proxy-lib.true" -}}
{{- if eq (include "pulsar-proxy-lib.value" . | lower) "true" -}}true{{- end -}}
{{- end -}}

{{- /* The text of proxy.conf. A backslash stays one: the proxy reads it as Pulsar's image would. */ -}}
{{- define "pulsar-proxy-lib.file" -}}
# Rendered by Helm out of configData; `pulsar-proxy config` shows what is in force.
{{- range $key, $text := .file }}
{{ $key }}={{ $text }}
{{- end }}
{{- end -}}

{{- /* `env` of a container out of (dict "settings" S "extra" LIST): what a file cannot have, and the operator's own. */ -}}
{{- define "pulsar-proxy-lib.env" -}}
{{- $env := list -}}
{{- range $key, $text := .settings.env -}}{{- $env = append $env (dict "name" $key "value" $text) -}}{{- end -}}
{{- with concat $env (.extra | default list) -}}
env:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- /* A hash of what needs a restart: keys that SIGHUP changes are left out, unless `always`. */ -}}
{{- define "pulsar-proxy-lib.checksum" -}}
{{- $hashed := dict -}}
{{- range $key, $text := .settings.all -}}
  {{- $about := get $.settings.table.keys $key | default dict -}}
  {{- if or $.always (not $about.dynamic) -}}{{- $_ := set $hashed $key $text -}}{{- end -}}
{{- end -}}
{{- dict "keys" $hashed "env" .settings.env | toJson | sha256sum -}}
{{- end -}}

{{- /* Refuse variables that would change what memory and grace period were computed from: (dict "settings" S "env" LIST). */ -}}
{{- define "pulsar-proxy-lib.checkEnv" -}}
{{- $counted := list "OTEL_SDK_DISABLED" "proxyLogLevel" "topicListFairness" "eventLogTopic" "eventLogDirectory" "topicListSpillDirectory" "tlsEnabledWithBroker" "proxyRole" "authenticationEnabled" "authenticationProviders" "forwardAuthorizationCredentials" -}}
{{- range .env -}}
  {{- $key := trimPrefix "PULSAR_PREFIX_" .name -}}
  {{- if or (has $key $counted) (regexMatch "^((broker|functionWorker)WebServiceURL(TLS)?$|httpReverseProxy[.])" $key) (hasKey (get $.settings.table.keys $key | default dict) "least") -}}
    {{- fail (printf "extraEnvs: got %s, expected it in configData: memory and grace period are computed from there" .name) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* Seconds from SIGTERM to the end, at most: the wait of a gateway, the drain, and 5 s to close what is left. */ -}}
{{- define "pulsar-proxy-lib.graceSeconds" -}}
{{- $millis := int64 (include "pulsar-proxy-lib.value" (dict "settings" .settings "key" "shutdownDrainMillis")) -}}
{{- if ne (include "pulsar-proxy-lib.value" (dict "settings" .settings "key" "proxyRole") | lower) "sidecar" -}}
  {{- $millis = add $millis (int64 (include "pulsar-proxy-lib.value" (dict "settings" .settings "key" "shutdownPreDrainMillis"))) -}}
{{- end -}}
{{- add (div (add $millis 999) 1000) 5 -}}
{{- end -}}

{{- /* Where the disk of `spill` is mounted, and the directory in it: the proxy makes it, for an emptyDir is open to its group. */ -}}
{{- define "pulsar-proxy-lib.spillMount" -}}/pulsar/lists{{- end -}}
{{- define "pulsar-proxy-lib.spillDirectory" -}}{{ include "pulsar-proxy-lib.spillMount" . }}/spill{{- end -}}

{{- /* Refuse a directory beside that of `spill`: (dict "spill" V "configData" MAP). */ -}}
{{- define "pulsar-proxy-lib.checkSpill" -}}
{{- range $key := list "topicListSpillDirectory" "PULSAR_PREFIX_topicListSpillDirectory" -}}
  {{- if and $.spill.enabled (hasKey $.configData $key) -}}
    {{- fail (printf "configData.%s: got a value with spill.enabled, expected one of them: the chart sets the key" $key) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* The volume of `spill`, as JSON, out of (dict "settings" S "spill" V): larger than the key, for a pod that fills it is evicted. */ -}}
{{- define "pulsar-proxy-lib.spillVolume" -}}
{{- $max := int64 (include "pulsar-proxy-lib.int" (dict "settings" .settings "key" "topicListSpillMaxMB")) -}}
{{- $emptyDir := get (.spill.volume | default dict) "emptyDir" | default dict -}}
{{- if eq (get $emptyDir "medium" | default "") "Memory" -}}
  {{- fail "spill.volume.emptyDir.medium: got Memory, expected a disk: the proxy refuses to move lists from memory to memory" -}}
{{- end -}}
{{- if and .spill.volume .spill.sizeLimit -}}
  {{- fail "spill.sizeLimit: got a value with spill.volume, expected one of them: it is the size of the chart's own emptyDir" -}}
{{- end -}}
{{- with .spill.sizeLimit -}}
  {{- if le (int64 (include "pulsar-proxy-lib.bytes" .)) (mul $max 1048576) -}}
    {{- fail (printf "spill.sizeLimit: got %s, expected more than topicListSpillMaxMB (%d MiB): a pod that fills it is evicted" . $max) -}}
  {{- end -}}
{{- end -}}
{{- if .spill.volume -}}{{ toJson .spill.volume }}
{{- else -}}{{ dict "emptyDir" (dict "sizeLimit" (.spill.sizeLimit | default (printf "%dMi" (add $max (div $max 8) 64)))) | toJson }}
{{- end -}}
{{- end -}}

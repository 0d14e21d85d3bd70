{{- /*
The memory that a configuration allows: the lines of the table, which are those of the proxy's own budget, added up as the
proxy adds them up at its start. Written by hand are only the templates of what follows from more than one key.
*/ -}}

{{- define "pulsar-proxy-lib.int" -}}
{{- $text := include "pulsar-proxy-lib.value" . -}}
{{- if not (regexMatch "^[0-9]+$" $text) -}}
  {{- fail (printf "configData.%s: got %q, expected a number: memory is computed from it" .key $text) -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{- /* The most that the proxy may take, in bytes; of lines that are alternatives only the largest counts. */ -}}
{{- define "pulsar-proxy-lib.worstCase" -}}
{{- $sum := 0 -}}
{{- $largest := dict -}}
{{- range $line := .settings.table.budget -}}
  {{- $bytes := int64 (include "pulsar-proxy-lib.budgetLine" (dict "settings" $.settings "line" $line)) -}}
  {{- if $line.alternative -}}
    {{- $_ := set $largest $line.alternative (max $bytes (get $largest $line.alternative | default 0)) -}}
  {{- else -}}
    {{- $sum = add $sum $bytes -}}
  {{- end -}}
{{- end -}}
{{- range $bytes := $largest -}}{{- $sum = add $sum $bytes -}}{{- end -}}
{{- $sum -}}
{{- end -}}

{{- /* The bytes of (dict "settings" S "line" LINE): the sum of the parts whose conditions hold. */ -}}
{{- define "pulsar-proxy-lib.budgetLine" -}}
{{- $sum := 0 -}}
{{- range $part := .line.parts -}}
  {{- $counts := true -}}
  {{- range $condition := $part.when -}}
    {{- if not (include "pulsar-proxy-lib.holds" (dict "settings" $.settings "condition" $condition)) -}}{{- $counts = false -}}{{- end -}}
  {{- end -}}
  {{- if $counts -}}
    {{- $bytes := int64 $part.each -}}
    {{- range $key := $part.times -}}
      {{- $derived := has $key (list "answerLimit" "relayReaders") -}}
      {{- $factor := include (printf "pulsar-proxy-lib.%s" (ternary $key "int" $derived)) (dict "settings" $.settings "key" $key) -}}
      {{- $bytes = mul $bytes (int64 $factor) -}}
    {{- end -}}
    {{- $sum = add $sum $bytes -}}
  {{- end -}}
{{- end -}}
{{- div $sum (int64 .line.dividedBy) -}}
{{- end -}}

{{- /* `true` if (dict "settings" S "condition" CONDITION) holds. */ -}}
{{- define "pulsar-proxy-lib.holds" -}}
{{- $settings := .settings -}}
{{- with .condition -}}
{{- $holds := false -}}
{{- if hasKey . "given" -}}
  {{- range $key := .given -}}
    {{- if include "pulsar-proxy-lib.value" (dict "settings" $settings "key" $key) -}}{{- $holds = true -}}{{- end -}}
  {{- end -}}
{{- else if hasKey . "is" -}}
  {{- $holds = eq .holds (regexMatch .is (include "pulsar-proxy-lib.value" (dict "settings" $settings "key" .key))) -}}
{{- else -}}
  {{- $holds = eq "true" (include (printf "pulsar-proxy-lib.%s" .fact) $settings) -}}
{{- end -}}
{{- if $holds -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The largest answer of a broker that is read: its key, else the smaller limit of the two that there are. */ -}}
{{- define "pulsar-proxy-lib.answerLimit" -}}
{{- $answer := include "pulsar-proxy-lib.value" (dict "settings" .settings "key" "topicListMaxAnswerBytes") -}}
{{- if not $answer -}}
  {{- $answer = .settings.table.keys.topicListMaxAnswerBytes.most -}}
  {{- range $key := list "maxTopicListInFlightHeapMemSizeMB" "maxTopicListInFlightDirectMemSizeMB" -}}
    {{- $limit := mul 1048576 (int64 (include "pulsar-proxy-lib.int" (dict "settings" $.settings "key" $key))) -}}
    {{- if $limit -}}{{- $answer = min $answer $limit -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- int64 $answer -}}
{{- end -}}

{{- /* The relay threads that there are at most. */ -}}
{{- define "pulsar-proxy-lib.relayReaders" -}}
{{- $threads := include "pulsar-proxy-lib.value" (dict "settings" .settings "key" "numIOThreads") | default "4" -}}
{{- min 64 (int64 $threads) -}}
{{- end -}}

{{- /* `true` if a throttle does more than observe. */ -}}
{{- define "pulsar-proxy-lib.throttleActs" -}}
{{- $acts := false -}}
{{- range $throttle := list "overloadThrottle" "adaptivePublisherThrottling" -}}
  {{- $enabled := include "pulsar-proxy-lib.value" (dict "settings" $ "key" (print $throttle "Enabled")) -}}
  {{- $observes := include "pulsar-proxy-lib.value" (dict "settings" $ "key" (print $throttle "ObserveOnly")) -}}
  {{- if and (regexMatch "^(?i)true$" $enabled) (regexMatch "^(?i)false$" $observes) -}}{{- $acts = true -}}{{- end -}}
{{- end -}}
{{- if $acts -}}true{{- end -}}
{{- end -}}

{{- /* `true` if relays share a pool of memory, and if they do not. */ -}}
{{- define "pulsar-proxy-lib.relayPool" -}}
{{- $pool := include "pulsar-proxy-lib.value" (dict "settings" . "key" "relayMemoryPoolMB") -}}
{{- if regexMatch "^0*[1-9][0-9]*$" $pool -}}true{{- end -}}
{{- end -}}
{{- define "pulsar-proxy-lib.noRelayPool" -}}
{{- if not (include "pulsar-proxy-lib.relayPool" .) -}}true{{- end -}}
{{- end -}}

{{- /* `true` if the kernel memory of relayed sockets is bounded in sum, and if it is not. */ -}}
{{- define "pulsar-proxy-lib.relaySocketBound" -}}
{{- $bound := include "pulsar-proxy-lib.value" (dict "settings" . "key" "relaySocketMemoryMB") -}}
{{- if regexMatch "^0*[1-9][0-9]*$" $bound -}}true{{- end -}}
{{- end -}}
{{- define "pulsar-proxy-lib.noRelaySocketBound" -}}
{{- if not (include "pulsar-proxy-lib.relaySocketBound" .) -}}true{{- end -}}
{{- end -}}

{{- /* `true` if the large send buffers of clients have a sum that is less than all of them, and if they have none. */ -}}
{{- define "pulsar-proxy-lib.sendMemory" -}}
{{- $memory := include "pulsar-proxy-lib.value" (dict "settings" . "key" "clientSocketSendMemoryMB") -}}
{{- if regexMatch "^0*[1-9][0-9]*$" $memory -}}
  {{- $beyond := mul 2 (sub (int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "clientSocketSendBufferBytes"))) 16384) -}}
  {{- $clients := int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "maxConcurrentInboundConnections")) -}}
  {{- if and (gt $beyond 0) (or (eq $clients 0) (lt (mul 1048576 (int64 $memory)) (mul $clients $beyond))) -}}true{{- end -}}
{{- end -}}
{{- end -}}
{{- define "pulsar-proxy-lib.noSendMemory" -}}
{{- if not (include "pulsar-proxy-lib.sendMemory" .) -}}true{{- end -}}
{{- end -}}

{{- /* `true` if the bytes of commands bound requests more than their number does, and if they do not. */ -}}
{{- define "pulsar-proxy-lib.commandBytes" -}}
{{- $bytes := include "pulsar-proxy-lib.value" (dict "settings" . "key" "maxConcurrentLookupRequestMB") -}}
{{- if regexMatch "^0*[1-9][0-9]*$" $bytes -}}
  {{- $requests := int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "maxConcurrentLookupRequests")) -}}
  {{- if lt (mul 5 1048576 (int64 $bytes)) (mul 14336 $requests) -}}true{{- end -}}
{{- end -}}
{{- end -}}
{{- define "pulsar-proxy-lib.noCommandBytes" -}}
{{- if not (include "pulsar-proxy-lib.commandBytes" .) -}}true{{- end -}}
{{- end -}}

{{- /* `true` if the web ports pass anything on. */ -}}
{{- define "pulsar-proxy-lib.webTargets" -}}
{{- $suffix := ternary "TLS" "" (eq (include "pulsar-proxy-lib.true" (dict "settings" . "key" "tlsEnabledWithBroker")) "true") -}}
{{- $brokers := include "pulsar-proxy-lib.value" (dict "settings" . "key" (printf "brokerWebServiceURL%s" $suffix)) -}}
{{- $workers := include "pulsar-proxy-lib.value" (dict "settings" . "key" (printf "functionWorkerWebServiceURL%s" $suffix)) -}}
{{- $more := false -}}
{{- range $key, $text := .all -}}{{- if hasPrefix "httpReverseProxy." $key -}}{{- $more = true -}}{{- end -}}{{- end -}}
{{- if or $brokers $workers $more -}}true{{- end -}}
{{- end -}}

{{- /* `true` if brokers get the credentials of some clients (forwards_credentials in proxy/config/values.py). */ -}}
{{- define "pulsar-proxy-lib.forwards" -}}
{{- $key := "forwardAuthorizationCredentials" -}}
{{- $bare := ternary "(?i)tls$" "(?i)(tls|basic)$" (ne (get .all $key | default "" | trim) "") -}}
{{- $some := false -}}
{{- range splitList "," (include "pulsar-proxy-lib.value" (dict "settings" . "key" "authenticationProviders")) -}}
  {{- with trim . -}}{{- if not (regexMatch $bare .) -}}{{- $some = true -}}{{- end -}}{{- end -}}
{{- end -}}
{{- if and $some (include "pulsar-proxy-lib.true" (dict "settings" . "key" "authenticationEnabled")) (include "pulsar-proxy-lib.true" (dict "settings" . "key" $key)) -}}true{{- end -}}
{{- end -}}

{{- /* `true` if the environment turns on the export of metrics to an OpenTelemetry collector. */ -}}
{{- define "pulsar-proxy-lib.exports" -}}
{{- if eq (get .env "OTEL_SDK_DISABLED" | trim | lower) "false" -}}true{{- end -}}
{{- end -}}

{{- /* A quantity of Kubernetes in bytes. */ -}}
{{- define "pulsar-proxy-lib.bytes" -}}
{{- $text := include "pulsar-proxy-lib.text" . -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- if not (regexMatch "^[0-9]+([kMG]|[KMG]i)?$" $text) -}}
  {{- fail (printf "memory.limit: got %q, expected a whole number with Ki, Mi, Gi, k, M, G or nothing behind it" $text) -}}
{{- end -}}
{{- mul (int64 (regexFind "^[0-9]+" $text)) (int64 (get $units (regexFind "[kMGi]*$" $text))) -}}
{{- end -}}

{{- /*
Requests and limits of memory out of (dict "settings" S "memory" VALUES): computed, or what `memory.limit` says, which must
not be less than what the configuration allows unless `memory.allowLess` is true.
*/ -}}
{{- define "pulsar-proxy-lib.memory" -}}
{{- $need := int64 (include "pulsar-proxy-lib.worstCase" .) -}}
{{- $extra := int64 (include "pulsar-proxy-lib.bytes" .memory.extra) -}}
{{- $mebibytes := div (add $need $extra 1048575) 1048576 -}}
{{- if .memory.limit -}}
  {{- if and (lt (int64 (include "pulsar-proxy-lib.bytes" .memory.limit)) (add $need $extra)) (not .memory.allowLess) -}}
    {{- fail (printf "memory.limit: got %v, expected at least %dMi: the configured limits add up to that; lower them in configData, or set memory.allowLess=true" .memory.limit $mebibytes) -}}
  {{- end -}}
  {{- include "pulsar-proxy-lib.text" .memory.limit -}}
{{- else -}}
  {{- include "pulsar-proxy-lib.bounded" .settings -}}
  {{- printf "%dMi" $mebibytes -}}
{{- end -}}
{{- end -}}

{{- /*
Refuse to compute memory where a limit is switched off: a factor of the sum that may be 0 has no other 0. A key whose
default is 0 leaves the kernel its choice, which memory.extra is for (docs/memory.md).
*/ -}}
{{- define "pulsar-proxy-lib.bounded" -}}
{{- range $line := .table.budget -}}
  {{- range $part := $line.parts -}}
    {{- range $key := $part.times -}}
      {{- $about := get $.table.keys $key -}}
      {{- if and $about (eq 0 (int64 $about.least)) (ne $about.default "0") (eq (include "pulsar-proxy-lib.int" (dict "settings" $ "key" $key)) "0") -}}
        {{- fail (printf "configData.%s: got 0 (no limit), expected a limit, or memory.limit: no memory can be computed without one" $key) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

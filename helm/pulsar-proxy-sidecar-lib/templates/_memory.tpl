{{- /*
The memory that a configuration allows: the sum of docs/memory.md and of the proxy's own code (proxy/app/budget.py), from which
the constants come. A test holds the two sums against each other.
*/ -}}

{{- define "pulsar-proxy-lib.int" -}}
{{- $text := include "pulsar-proxy-lib.value" . -}}
{{- if not (regexMatch "^[0-9]+$" $text) -}}
  {{- fail (printf "configData.%s: got %q, expected a number: memory is computed from it" .key $text) -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{- /* The most that the proxy may take, in bytes. */ -}}
{{- define "pulsar-proxy-lib.worstCase" -}}
{{- $s := .settings -}}
{{- $c := $s.table.constants -}}
{{- $parts := list $c.IDLE_PROCESS_BYTES (include "pulsar-proxy-lib.worstCase.lists" $s) (include "pulsar-proxy-lib.worstCase.connections" $s)
  (include "pulsar-proxy-lib.worstCase.requests" $s) (include "pulsar-proxy-lib.worstCase.web" $s) (include "pulsar-proxy-lib.worstCase.events" $s)
  (include "pulsar-proxy-lib.worstCase.admin" $s) (include "pulsar-proxy-lib.worstCase.export" $s) -}}
{{- $sum := 0 -}}
{{- range $parts -}}{{- $sum = add $sum (int64 .) -}}{{- end -}}
{{- $sum -}}
{{- end -}}

{{- define "pulsar-proxy-lib.worstCase.lists" -}}
{{- $c := .table.constants -}}
{{- $heap := mul 1048576 (int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "maxTopicListInFlightHeapMemSizeMB"))) -}}
{{- $direct := mul 1048576 (int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "maxTopicListInFlightDirectMemSizeMB"))) -}}
{{- $answer := include "pulsar-proxy-lib.value" (dict "settings" . "key" "topicListMaxAnswerBytes") -}}
{{- if not $answer -}}
  {{- $answer = $c.LARGEST_FRAME_BYTES -}}
  {{- if $heap -}}{{- $answer = min $answer $heap -}}{{- end -}}
  {{- if $direct -}}{{- $answer = min $answer $direct -}}{{- end -}}
{{- end -}}
{{- $slack := div (mul (add $heap $direct) (int64 $c.SLACK_PERCENT)) 100 -}}
{{- add $heap $direct $slack (mul 2 (int64 $answer)) -}}
{{- end -}}

{{- define "pulsar-proxy-lib.worstCase.connections" -}}
{{- $c := .table.constants -}}
{{- $clients := int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "maxConcurrentInboundConnections")) -}}
{{- $brokers := int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "brokerConnectionsTotal")) -}}
{{- $kernel := int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "clientSocketSendBufferBytes")) -}}
{{- $relay := int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "relayBufferBytes")) -}}
{{- $receive := int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "brokerSocketReceiveBufferBytes")) -}}
{{- $brokerTls := include "pulsar-proxy-lib.true" (dict "settings" . "key" "tlsEnabledWithBroker") -}}
{{- $ends := 0 -}}
{{- if include "pulsar-proxy-lib.value" (dict "settings" . "key" "servicePortTls") -}}{{- $ends = $clients -}}{{- end -}}
{{- if $brokerTls -}}{{- $ends = add $ends $clients $brokers -}}{{- end -}}
{{- /* A connection is a lookup connection or a relay: only the larger of the two terms counts. */ -}}
{{- $each := add (int64 $c.CONNECTION_AT_REST_BYTES) (int64 $c.UNFINISHED_BYTES) (int64 $c.WRITER_BYTES) (mul 2 (max $kernel $relay)) -}}
{{- $sum := add (mul $clients $each) (mul $ends (int64 $c.TLS_CONNECTION_BYTES)) -}}
{{- $sum = add $sum (mul $brokers (add (int64 $c.BROKER_CONNECTION_BYTES) (mul 2 $receive))) -}}
{{- if and (include "pulsar-proxy-lib.true" (dict "settings" . "key" "authenticationEnabled")) (include "pulsar-proxy-lib.true" (dict "settings" . "key" "forwardAuthorizationCredentials")) -}}
  {{- $sum = add $sum (mul (add $clients $brokers) (int64 $c.MAX_FORWARDED_BYTES)) -}}
{{- end -}}
{{- if ne (include "pulsar-proxy-lib.value" (dict "settings" . "key" "proxyLogLevel")) "0" -}}
  {{- $sum = add $sum (int64 $c.NAMES_BYTES) (mul $clients 2 (int64 $c.HEAD_BYTES)) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{- define "pulsar-proxy-lib.worstCase.requests" -}}
{{- $c := .table.constants -}}
{{- $requests := int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "maxConcurrentLookupRequests")) -}}
{{- $heap := int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize")) -}}
{{- $direct := int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "maxTopicListInFlightDirectMemSizePermitsAcquireQueueSize")) -}}
{{- $sum := add (mul $requests (int64 $c.LARGEST_REQUEST_BYTES)) (mul (add $heap $direct) (int64 $c.QUEUED_WAITER_BYTES)) -}}
{{- if ne (include "pulsar-proxy-lib.value" (dict "settings" . "key" "topicListFairness") | lower) "fifo" -}}
  {{- $sum = add $sum (mul (int64 $c.SHARED_SEMAPHORES) (int64 $c.MAX_IDLE_DEBTORS) (int64 $c.DEBTOR_BYTES)) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{- define "pulsar-proxy-lib.worstCase.web" -}}
{{- $c := .table.constants -}}
{{- $tlsPort := include "pulsar-proxy-lib.value" (dict "settings" . "key" "webServicePortTls") -}}
{{- $sum := 0 -}}
{{- if or $tlsPort (include "pulsar-proxy-lib.value" (dict "settings" . "key" "webServicePort")) -}}
  {{- $connections := int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "maxHttpServerConnections")) -}}
  {{- $requests := int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "maxConcurrentHttpRequests")) -}}
  {{- $buffer := int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "httpOutputBufferSize")) -}}
  {{- $header := int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "httpMaxRequestHeaderSize")) -}}
  {{- $kernel := mul (int64 $c.WEB_KERNEL_BUFFERS) $buffer -}}
  {{- $sum = mul $connections (add (int64 $c.WEB_CONNECTION_BYTES) (mul 2 $header) $kernel) -}}
  {{- if $tlsPort -}}{{- $sum = add $sum (mul $connections (int64 $c.TLS_CONNECTION_BYTES)) -}}{{- end -}}
  {{- if include "pulsar-proxy-lib.webTargets" . -}}
    {{- $each := add (int64 $c.WEB_REQUEST_BYTES) (mul 2 (int64 $c.WINDOW_BUFFERS) $buffer) $kernel -}}
    {{- if include "pulsar-proxy-lib.true" (dict "settings" . "key" "tlsEnabledWithBroker") -}}{{- $each = add $each (int64 $c.LOOP_TLS_BYTES) -}}{{- end -}}
    {{- $sum = add $sum (mul $requests $each) -}}
  {{- end -}}
{{- end -}}
{{- $sum -}}
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

{{- define "pulsar-proxy-lib.worstCase.admin" -}}
{{- $c := .table.constants -}}
{{- $doors := 0 -}}
{{- if ne (include "pulsar-proxy-lib.value" (dict "settings" . "key" "controlSocketPath")) "none" -}}{{- $doors = 1 -}}{{- end -}}
{{- if include "pulsar-proxy-lib.value" (dict "settings" . "key" "adminApiAddress") -}}{{- $doors = add $doors 1 -}}{{- end -}}
{{- mul $doors (int64 $c.MOST_ASKERS) (int64 $c.ASKER_BYTES) -}}
{{- end -}}

{{- define "pulsar-proxy-lib.worstCase.events" -}}
{{- $c := .table.constants -}}
{{- $buffer := mul 1048576 (int64 (include "pulsar-proxy-lib.int" (dict "settings" . "key" "eventLogBufferMB"))) -}}
{{- $sum := 0 -}}
{{- $files := include "pulsar-proxy-lib.value" (dict "settings" . "key" "eventLogDirectory") -}}
{{- $topic := include "pulsar-proxy-lib.value" (dict "settings" . "key" "eventLogTopic") -}}
{{- if or $files $topic -}}{{- $sum = int64 $c.EVENT_NAMES_BYTES -}}{{- end -}}
{{- if $files -}}
  {{- $sum = add $sum $buffer (mul (int64 $c.SINK_BLOCKS) (int64 $c.BLOCK_BYTES)) -}}
{{- end -}}
{{- if $topic -}}
  {{- $sum = add $sum $buffer (int64 $c.PULSAR_CLIENT_BYTES) (mul (int64 $c.TOPIC_SINK_BLOCKS) (int64 $c.BLOCK_BYTES)) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{- /* The library that sends metrics to an OpenTelemetry collector, if the environment turns it on. */ -}}
{{- define "pulsar-proxy-lib.worstCase.export" -}}
{{- ternary .table.constants.OTLP_BYTES 0 (eq (get .env "OTEL_SDK_DISABLED" | trim | lower) "false") | int64 -}}
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

{{- /* Refuse to compute memory where a limit is switched off. */ -}}
{{- define "pulsar-proxy-lib.bounded" -}}
{{- range $key := list "maxConcurrentInboundConnections" "maxTopicListInFlightHeapMemSizeMB" "maxTopicListInFlightDirectMemSizeMB" "maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize" "maxTopicListInFlightDirectMemSizePermitsAcquireQueueSize" "clientSocketSendBufferBytes" "brokerSocketReceiveBufferBytes" -}}
  {{- if eq (include "pulsar-proxy-lib.int" (dict "settings" $ "key" $key)) "0" -}}
    {{- fail (printf "configData.%s: got 0 (no limit), expected a limit, or memory.limit: no memory can be computed without one" $key) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

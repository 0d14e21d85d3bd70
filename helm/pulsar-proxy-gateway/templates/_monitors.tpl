{{- /* One endpoint of a PodMonitor or ServiceMonitor: (dict "monitor" VALUES "dropCreated" BOOL "port" NAME). Labels as in Pulsar's chart. */ -}}
{{- define "pulsar-proxy.endpoint" -}}
port: {{ .port }}
path: /metrics
scheme: http
interval: {{ .monitor.interval }}
scrapeTimeout: {{ .monitor.scrapeTimeout }}
honorLabels: true
{{- with .monitor.authorization }}
authorization:
  {{- toYaml . | nindent 2 }}
{{- end }}
relabelings:
  - action: labelmap
    regex: __meta_kubernetes_pod_label_(component)
  - sourceLabels: [__meta_kubernetes_namespace]
    targetLabel: kubernetes_namespace
  - sourceLabels: [__meta_kubernetes_pod_label_component]
    targetLabel: job
  - sourceLabels: [__meta_kubernetes_pod_name]
    targetLabel: kubernetes_pod_name
{{- if or .dropCreated .monitor.metricRelabelings }}
metricRelabelings:
  {{- if .dropCreated }}
  - sourceLabels: [__name__]
    action: drop
    regex: .*_created
  {{- end }}
  {{- with .monitor.metricRelabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

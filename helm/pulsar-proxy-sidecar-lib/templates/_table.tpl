{{- /* Written by scripts/generate_helm.py from the table of keys and the budget of memory; do not edit here. */ -}}
{{- define "pulsar-proxy-lib.table" -}}
{
 "keys": {
  "servicePort": {
   "default": "6650",
   "blankIsDefault": false,
   "dynamic": false,
   "least": 0,
   "most": 65535
  },
  "servicePortTls": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false,
   "least": 0,
   "most": 65535
  },
  "webServicePort": {
   "default": "8080",
   "blankIsDefault": false,
   "dynamic": false,
   "least": 0,
   "most": 65535
  },
  "webServicePortTls": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false,
   "least": 0,
   "most": 65535
  },
  "bindAddress": {
   "default": "0.0.0.0",
   "blankIsDefault": false,
   "dynamic": false
  },
  "advertisedAddress": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "haProxyProtocolEnabled": {
   "default": "false",
   "blankIsDefault": true,
   "dynamic": false
  },
  "brokerHaProxyProtocolVersion": {
   "default": "1",
   "blankIsDefault": true,
   "dynamic": false
  },
  "maxConnectionAgeSeconds": {
   "default": "0",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 0,
   "most": 31536000
  },
  "clusterName": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "statusFilePath": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "brokerServiceURL": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "brokerServiceURLTLS": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "brokerWebServiceURL": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "brokerWebServiceURLTLS": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "functionWorkerWebServiceURL": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "functionWorkerWebServiceURLTLS": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "brokerDnsTtlSeconds": {
   "default": "30",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1,
   "most": 86400
  },
  "brokerProbeIntervalMillis": {
   "default": "500",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 50,
   "most": 3600000
  },
  "checkActiveBrokers": {
   "default": "false",
   "blankIsDefault": true,
   "dynamic": false
  },
  "brokerProxyConnectTimeoutMs": {
   "default": "10000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 1,
   "most": 3600000
  },
  "brokerProxyReadTimeoutMs": {
   "default": "75000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 0,
   "most": 3600000
  },
  "brokerProxyAllowedHostNames": {
   "default": "*",
   "blankIsDefault": false,
   "dynamic": true
  },
  "brokerProxyAllowedIPAddresses": {
   "default": "*",
   "blankIsDefault": false,
   "dynamic": true
  },
  "brokerProxyAllowedTargetPorts": {
   "default": "6650,6651",
   "blankIsDefault": false,
   "dynamic": true
  },
  "brokerWebServiceAllowedTargetPorts": {
   "default": "8080,8443",
   "blankIsDefault": false,
   "dynamic": true
  },
  "topicListMaxOutstandingPerBroker": {
   "default": "64",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 1,
   "most": 100000
  },
  "topicListBrokerAnswerTimeoutMillis": {
   "default": "30000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 1,
   "most": 3600000
  },
  "brokerConnectionsPerKey": {
   "default": "2",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 1,
   "most": 1024
  },
  "brokerConnectionsTotal": {
   "default": "256",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 1,
   "most": 65536
  },
  "brokerConnectionIdleMillis": {
   "default": "60000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 1,
   "most": 86400000
  },
  "maxConcurrentInboundConnections": {
   "default": "10000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 0,
   "most": 10000000
  },
  "maxConcurrentInboundConnectionsPerIp": {
   "default": "0",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 0,
   "most": 10000000
  },
  "maxConcurrentLookupRequests": {
   "default": "50000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 1,
   "most": 10000000
  },
  "maxOutstandingRequestsPerConnection": {
   "default": "1000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 1,
   "most": 1000000
  },
  "maxMessageSize": {
   "default": "5242880",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1024,
   "most": 2147473407
  },
  "maxLookupFrameBytes": {
   "default": "1048576",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 65536,
   "most": 2147483647
  },
  "handshakeTimeoutMillis": {
   "default": "10000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 1,
   "most": 3600000
  },
  "keepAliveIntervalSeconds": {
   "default": "30",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 0,
   "most": 3600
  },
  "tlsCertificateFilePath": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "tlsKeyFilePath": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "tlsTrustCertsFilePath": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "tlsRequireTrustedClientCertOnConnect": {
   "default": "false",
   "blankIsDefault": true,
   "dynamic": false
  },
  "tlsProtocols": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "tlsCiphers": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "webServiceTlsProtocols": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "webServiceTlsCiphers": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "tlsCertRefreshCheckDurationSec": {
   "default": "300",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 0,
   "most": 86400
  },
  "maxConcurrentTlsHandshakes": {
   "default": "256",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1,
   "most": 65536
  },
  "tlsEnabledWithBroker": {
   "default": "false",
   "blankIsDefault": true,
   "dynamic": false
  },
  "tlsHostnameVerificationEnabled": {
   "default": "true",
   "blankIsDefault": true,
   "dynamic": false
  },
  "tlsAllowInsecureConnection": {
   "default": "false",
   "blankIsDefault": true,
   "dynamic": false
  },
  "brokerClientTrustCertsFilePath": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "brokerClientCertificateFilePath": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "brokerClientKeyFilePath": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "brokerClientTlsProtocols": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "brokerClientTlsCiphers": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "authenticationEnabled": {
   "default": "false",
   "blankIsDefault": true,
   "dynamic": false
  },
  "authenticationProviders": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "authenticationRefreshCheckSeconds": {
   "default": "60",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1,
   "most": 86400
  },
  "anonymousUserRole": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "authenticationRoleLoggingAnonymizer": {
   "default": "none",
   "blankIsDefault": true,
   "dynamic": false
  },
  "authorizationEnabled": {
   "default": "false",
   "blankIsDefault": true,
   "dynamic": false
  },
  "superUserRoles": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "forwardAuthorizationCredentials": {
   "default": "false",
   "blankIsDefault": true,
   "dynamic": false
  },
  "maxConcurrentAuthentications": {
   "default": "256",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1,
   "most": 100000
  },
  "tokenSecretKey": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "tokenPublicKey": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "tokenPublicAlg": {
   "default": "rs256",
   "blankIsDefault": true,
   "dynamic": false
  },
  "tokenAuthClaim": {
   "default": "sub",
   "blankIsDefault": false,
   "dynamic": false
  },
  "tokenAudienceClaim": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "tokenAudience": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "tokenAllowedClockSkewSeconds": {
   "default": "0",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 0,
   "most": 86400
  },
  "basicAuthConf": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "openIDAllowedTokenIssuers": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "openIDAllowedAudiences": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "openIDTokenIssuerTrustCertsFilePath": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "openIDRoleClaim": {
   "default": "sub",
   "blankIsDefault": false,
   "dynamic": false
  },
  "openIDAcceptedTimeLeewaySeconds": {
   "default": "0",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 0,
   "most": 86400
  },
  "openIDCacheSize": {
   "default": "5",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1,
   "most": 1000
  },
  "openIDCacheRefreshAfterWriteSeconds": {
   "default": "64800",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1,
   "most": 31536000
  },
  "openIDCacheExpirationSeconds": {
   "default": "86400",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1,
   "most": 31536000
  },
  "openIDHttpConnectionTimeoutMillis": {
   "default": "10000",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1,
   "most": 3600000
  },
  "openIDHttpReadTimeoutMillis": {
   "default": "10000",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1,
   "most": 3600000
  },
  "openIDKeyIdCacheMissRefreshSeconds": {
   "default": "300",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1,
   "most": 86400
  },
  "openIDRequireIssuersUseHttps": {
   "default": "true",
   "blankIsDefault": true,
   "dynamic": false
  },
  "openIDFallbackDiscoveryMode": {
   "default": "disabled",
   "blankIsDefault": true,
   "dynamic": false
  },
  "brokerClientAuthenticationPlugin": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "brokerClientAuthenticationParameters": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "maxTopicListInFlightHeapMemSizeMB": {
   "default": "100",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 0,
   "most": 1048576
  },
  "maxTopicListInFlightDirectMemSizeMB": {
   "default": "100",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 0,
   "most": 1048576
  },
  "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis": {
   "default": "25000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 0,
   "most": 3600000
  },
  "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis": {
   "default": "25000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 0,
   "most": 3600000
  },
  "maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize": {
   "default": "10000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 0,
   "most": 10000000
  },
  "maxTopicListInFlightDirectMemSizePermitsAcquireQueueSize": {
   "default": "10000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 0,
   "most": 10000000
  },
  "topicListRequestTimeoutMillis": {
   "default": "28000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 1,
   "most": 3600000
  },
  "topicListInitialHeapPermitBytes": {
   "default": "1024",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 0,
   "most": 2147483647
  },
  "topicListMaxAnswerBytes": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": true,
   "least": 1024,
   "most": 2147483647
  },
  "topicListCoalescingEnabled": {
   "default": "true",
   "blankIsDefault": true,
   "dynamic": true
  },
  "topicListFairness": {
   "default": "fifo",
   "blankIsDefault": true,
   "dynamic": true
  },
  "topicListMaxMemoryPercentPerKey": {
   "default": "100",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 1,
   "most": 100
  },
  "topicListWriteStallTimeoutMillis": {
   "default": "20000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 0,
   "most": 3600000
  },
  "topicListWriteMinBytesPerSecond": {
   "default": "32768",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 0,
   "most": 2147483647
  },
  "watchTopicListLimitEnabled": {
   "default": "true",
   "blankIsDefault": true,
   "dynamic": true
  },
  "watchTopicListMaxPauseMillis": {
   "default": "1000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 0,
   "most": 3600000
  },
  "httpOutputBufferSize": {
   "default": "32768",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1024,
   "most": 16777216
  },
  "httpMaxRequestHeaderSize": {
   "default": "8192",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1024,
   "most": 1048576
  },
  "httpInputMaxReplayBufferSize": {
   "default": "5242880",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 0,
   "most": 2147483647
  },
  "httpProxyTimeout": {
   "default": "300000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 1,
   "most": 86400000
  },
  "maxConcurrentHttpRequests": {
   "default": "1024",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 1,
   "most": 1000000
  },
  "maxHttpServerConnections": {
   "default": "2048",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1,
   "most": 1000000
  },
  "httpRequestsLimitEnabled": {
   "default": "false",
   "blankIsDefault": true,
   "dynamic": true
  },
  "httpRequestsMaxPerSecond": {
   "default": "100.0",
   "blankIsDefault": true,
   "dynamic": true
  },
  "proxyHttpResponseHeadersJson": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "enableProxyStatsEndpoints": {
   "default": "true",
   "blankIsDefault": true,
   "dynamic": false
  },
  "authenticateMetricsEndpoint": {
   "default": "true",
   "blankIsDefault": true,
   "dynamic": false
  },
  "metricsServletTimeoutMs": {
   "default": "30000",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1,
   "most": 3600000
  },
  "httpLookupPorts": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "webServiceHaProxyProtocolEnabled": {
   "default": "false",
   "blankIsDefault": true,
   "dynamic": false
  },
  "webServiceTrustXForwardedFor": {
   "default": "false",
   "blankIsDefault": true,
   "dynamic": false
  },
  "clientSocketSendBufferBytes": {
   "default": "262144",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 0,
   "most": 1073741824
  },
  "brokerSocketReceiveBufferBytes": {
   "default": "1048576",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 0,
   "most": 1073741824
  },
  "relayBufferBytes": {
   "default": "262144",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 65536,
   "most": 16777216
  },
  "acceptBacklog": {
   "default": "4096",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1,
   "most": 65535
  },
  "tcpUserTimeoutMillis": {
   "default": "30000",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 0,
   "most": 3600000
  },
  "tcpKeepAliveIdleSeconds": {
   "default": "60",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 0,
   "most": 32767
  },
  "tcpKeepAliveIntervalSeconds": {
   "default": "10",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1,
   "most": 32767
  },
  "tcpKeepAliveProbes": {
   "default": "3",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1,
   "most": 127
  },
  "controlSocketPath": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "adminApiAddress": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "adminApiTokenFilePath": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "proxyRole": {
   "default": "gateway",
   "blankIsDefault": true,
   "dynamic": false
  },
  "shutdownPreDrainMillis": {
   "default": "5000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 0,
   "most": 3600000
  },
  "shutdownDrainMillis": {
   "default": "15000",
   "blankIsDefault": true,
   "dynamic": true,
   "least": 0,
   "most": 3600000
  },
  "proxyLogLevel": {
   "default": "0",
   "blankIsDefault": true,
   "dynamic": true
  },
  "logLevel": {
   "default": "info",
   "blankIsDefault": true,
   "dynamic": true
  },
  "logFormat": {
   "default": "json",
   "blankIsDefault": true,
   "dynamic": false
  },
  "eventLogDirectory": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "eventLogTopic": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "eventLogTopicServiceURL": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "eventLogTopicWebServiceURL": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "eventLogTopicAuthenticationPlugin": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "eventLogTopicAuthenticationParameters": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "eventLogProxyId": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "eventLogIdentities": {
   "default": "hashed",
   "blankIsDefault": true,
   "dynamic": false
  },
  "eventLogSalt": {
   "default": "",
   "blankIsDefault": false,
   "dynamic": false
  },
  "eventLogBufferMB": {
   "default": "8",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1,
   "most": 1024
  },
  "eventLogFlushMillis": {
   "default": "1000",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 10,
   "most": 60000
  },
  "eventLogFileMaxSizeMB": {
   "default": "64",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1,
   "most": 1048576
  },
  "eventLogFileMaxAgeMillis": {
   "default": "60000",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 1000,
   "most": 86400000
  },
  "eventLogFilesMaxTotalMB": {
   "default": "1024",
   "blankIsDefault": true,
   "dynamic": false,
   "least": 0,
   "most": 1073741824
  }
 },
 "budget": [
  {"owner": "process at rest", "alternative": "", "dividedBy": 1, "parts": [{"each": 67108864, "times": [], "when": []}]},
  {"owner": "export of metrics", "alternative": "", "dividedBy": 1, "parts": [{"each": 20971520, "times": [], "when": [{"fact": "exports"}]}]},
  {"owner": "decoded topic lists", "alternative": "", "dividedBy": 1, "parts": [{"each": 1048576, "times": ["maxTopicListInFlightHeapMemSizeMB"], "when": []}]},
  {"owner": "encoded topic lists", "alternative": "", "dividedBy": 1, "parts": [{"each": 1048576, "times": ["maxTopicListInFlightDirectMemSizeMB"], "when": []}]},
  {"owner": "slack of the two", "alternative": "", "dividedBy": 100, "parts": [{"each": 15728640, "times": ["maxTopicListInFlightHeapMemSizeMB"], "when": []}, {"each": 15728640, "times": ["maxTopicListInFlightDirectMemSizeMB"], "when": []}]},
  {"owner": "one answer over each limit", "alternative": "", "dividedBy": 1, "parts": [{"each": 2, "times": ["answerLimit"], "when": []}]},
  {"owner": "connections at rest", "alternative": "", "dividedBy": 1, "parts": [{"each": 8192, "times": ["maxConcurrentInboundConnections"], "when": []}]},
  {"owner": "unfinished frames, unread answers", "alternative": "", "dividedBy": 1, "parts": [{"each": 8192, "times": ["maxConcurrentInboundConnections"], "when": []}]},
  {"owner": "books of writers", "alternative": "", "dividedBy": 1, "parts": [{"each": 1536, "times": ["maxConcurrentInboundConnections"], "when": []}]},
  {"owner": "TLS connections", "alternative": "", "dividedBy": 1, "parts": [{"each": 57344, "times": ["maxConcurrentInboundConnections"], "when": [{"given": ["servicePortTls"]}]}, {"each": 57344, "times": ["maxConcurrentInboundConnections"], "when": [{"key": "tlsEnabledWithBroker", "is": "^(?i)true$", "holds": true}]}, {"each": 57344, "times": ["brokerConnectionsTotal"], "when": [{"key": "tlsEnabledWithBroker", "is": "^(?i)true$", "holds": true}]}]},
  {"owner": "kernel send buffers", "alternative": "lookup or relay", "dividedBy": 1, "parts": [{"each": 2, "times": ["maxConcurrentInboundConnections", "clientSocketSendBufferBytes"], "when": []}]},
  {"owner": "relays, both directions stalled", "alternative": "lookup or relay", "dividedBy": 1, "parts": [{"each": 2, "times": ["maxConcurrentInboundConnections", "relayBufferBytes"], "when": []}]},
  {"owner": "credentials to forward", "alternative": "", "dividedBy": 1, "parts": [{"each": 8192, "times": ["maxConcurrentInboundConnections"], "when": [{"key": "authenticationEnabled", "is": "^(?i)true$", "holds": true}, {"key": "forwardAuthorizationCredentials", "is": "^(?i)true$", "holds": true}]}, {"each": 8192, "times": ["brokerConnectionsTotal"], "when": [{"key": "authenticationEnabled", "is": "^(?i)true$", "holds": true}, {"key": "forwardAuthorizationCredentials", "is": "^(?i)true$", "holds": true}]}]},
  {"owner": "broker connections", "alternative": "", "dividedBy": 1, "parts": [{"each": 20480, "times": ["brokerConnectionsTotal"], "when": []}, {"each": 2, "times": ["brokerConnectionsTotal", "brokerSocketReceiveBufferBytes"], "when": []}]},
  {"owner": "relayed commands that are shown", "alternative": "", "dividedBy": 1, "parts": [{"each": 178257920, "times": [], "when": [{"key": "proxyLogLevel", "is": "^(?i)0$", "holds": false}]}, {"each": 8192, "times": ["maxConcurrentInboundConnections"], "when": [{"key": "proxyLogLevel", "is": "^(?i)0$", "holds": false}]}]},
  {"owner": "requests under way", "alternative": "", "dividedBy": 1, "parts": [{"each": 24576, "times": ["maxConcurrentLookupRequests"], "when": []}]},
  {"owner": "queues", "alternative": "", "dividedBy": 1, "parts": [{"each": 600, "times": ["maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize"], "when": []}, {"each": 600, "times": ["maxTopicListInFlightDirectMemSizePermitsAcquireQueueSize"], "when": []}]},
  {"owner": "keys that owe", "alternative": "", "dividedBy": 1, "parts": [{"each": 71303168, "times": [], "when": [{"key": "topicListFairness", "is": "^(?i)fifo$", "holds": false}]}]},
  {"owner": "connections of the web ports", "alternative": "", "dividedBy": 1, "parts": [{"each": 16384, "times": ["maxHttpServerConnections"], "when": [{"given": ["webServicePort", "webServicePortTls"]}]}, {"each": 2, "times": ["maxHttpServerConnections", "httpMaxRequestHeaderSize"], "when": [{"given": ["webServicePort", "webServicePortTls"]}]}, {"each": 6, "times": ["maxHttpServerConnections", "httpOutputBufferSize"], "when": [{"given": ["webServicePort", "webServicePortTls"]}]}]},
  {"owner": "TLS of the web ports", "alternative": "", "dividedBy": 1, "parts": [{"each": 57344, "times": ["maxHttpServerConnections"], "when": [{"given": ["webServicePortTls"]}]}]},
  {"owner": "requests passed on", "alternative": "", "dividedBy": 1, "parts": [{"each": 49152, "times": ["maxConcurrentHttpRequests"], "when": [{"given": ["webServicePort", "webServicePortTls"]}, {"fact": "webTargets"}]}, {"each": 14, "times": ["maxConcurrentHttpRequests", "httpOutputBufferSize"], "when": [{"given": ["webServicePort", "webServicePortTls"]}, {"fact": "webTargets"}]}]},
  {"owner": "TLS of requests passed on", "alternative": "", "dividedBy": 1, "parts": [{"each": 327680, "times": ["maxConcurrentHttpRequests"], "when": [{"given": ["webServicePort", "webServicePortTls"]}, {"fact": "webTargets"}, {"key": "tlsEnabledWithBroker", "is": "^(?i)true$", "holds": true}]}]},
  {"owner": "askers of the admin API", "alternative": "", "dividedBy": 1, "parts": [{"each": 10485760, "times": [], "when": [{"key": "controlSocketPath", "is": "^none$", "holds": false}]}, {"each": 10485760, "times": [], "when": [{"given": ["adminApiAddress"]}]}]},
  {"owner": "event log, files", "alternative": "", "dividedBy": 1, "parts": [{"each": 1048576, "times": ["eventLogBufferMB"], "when": [{"given": ["eventLogDirectory"]}]}, {"each": 786432, "times": [], "when": [{"given": ["eventLogDirectory"]}]}]},
  {"owner": "event log, topic", "alternative": "", "dividedBy": 1, "parts": [{"each": 1048576, "times": ["eventLogBufferMB"], "when": [{"given": ["eventLogTopic"]}]}, {"each": 35127296, "times": [], "when": [{"given": ["eventLogTopic"]}]}]},
  {"owner": "event log, names", "alternative": "", "dividedBy": 1, "parts": [{"each": 17825792, "times": [], "when": [{"given": ["eventLogDirectory", "eventLogTopic"]}]}]}
 ]
}
{{- end -}}
{{- define "pulsar-proxy-lib.version" -}}0.1.0{{- end -}}

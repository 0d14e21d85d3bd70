-- Views on the tables of the pipeline, in Spark's SQL: examples to change and to add to. Tables are never changed by them.
-- Columns of the tables: docs/reference/pipeline-tables.md. README.md beside this file says how tables and views get into
-- a catalog. Every view has the cluster, where its table has one: clusters are never added up.

-- Who costs how much, a day.
CREATE OR REPLACE VIEW costs_by_namespace AS
SELECT date, cluster, tenant, namespace,
       sum(requests) AS requests, sum(refused) AS refused,
       sum(heap_byte_seconds) / 1073741824 AS heap_gib_seconds,
       sum(direct_byte_seconds + watch_direct_byte_seconds) / 1073741824 AS direct_gib_seconds,
       sum(response_bytes + watch_bytes) AS sent_bytes,
       max(max_response_bytes) AS largest_answer_bytes
FROM usage
GROUP BY date, cluster, tenant, namespace;

CREATE OR REPLACE VIEW costs_by_principal AS
SELECT date, cluster, principal, client_version,
       sum(requests) AS requests, sum(refused) AS refused,
       sum(heap_byte_seconds) / 1073741824 AS heap_gib_seconds,
       sum(direct_byte_seconds + watch_direct_byte_seconds) / 1073741824 AS direct_gib_seconds
FROM usage
GROUP BY date, cluster, principal, client_version;

-- Which broker was asked how much, and how many requests got an error or no answer from it.
CREATE OR REPLACE VIEW questions_by_broker AS
SELECT date, cluster, broker,
       sum(questions) AS questions, sum(questions_saved) AS questions_saved, sum(upstream_error) AS failed_requests
FROM usage
WHERE broker IS NOT NULL
GROUP BY date, cluster, broker;

-- How requests ended, an hour at each proxy.
CREATE OR REPLACE VIEW outcomes_by_hour AS
SELECT date_trunc('HOUR', window_start) AS hour_start, cluster, proxy_id,
       sum(requests) AS requests, sum(answered) AS answered, sum(refused) AS refused, sum(cancelled) AS cancelled,
       sum(upstream_error + failed) AS failed
FROM usage
GROUP BY date_trunc('HOUR', window_start), cluster, proxy_id;

-- Why they were refused, a day: the column of `usage` is the reason.
CREATE OR REPLACE VIEW refusals_by_reason AS
SELECT date, cluster, namespace, reason, sum(times) AS refused
FROM usage UNPIVOT (times FOR reason IN
     (timeout_heap, timeout_heap_update, timeout_direct, timeout_other, queue_full_heap, queue_full_direct, oversize))
WHERE times > 0
GROUP BY date, cluster, namespace, reason;

-- How long requests waited, an hour: `wait` is memory, total or watch. From buckets: at most 4.5 % off.
CREATE OR REPLACE VIEW waits_by_hour AS
WITH counted AS (
  SELECT date_trunc('HOUR', window_start) AS hour_start, cluster, wait, bucket, sum(count) AS requests
  FROM waits
  GROUP BY date_trunc('HOUR', window_start), cluster, wait, bucket
), placed AS (
  SELECT *,
         sum(requests) OVER (PARTITION BY hour_start, cluster, wait ORDER BY bucket) AS seen,
         sum(requests) OVER (PARTITION BY hour_start, cluster, wait) AS whole,
         CASE WHEN bucket = -1 THEN 0 ELSE pow(2, (bucket + 0.5) / 8) / 1e6 END AS seconds
  FROM counted
)
SELECT hour_start, cluster, wait, max(whole) AS requests,
       min(seconds) FILTER (WHERE seen >= 0.50 * whole) AS p50_seconds,
       min(seconds) FILTER (WHERE seen >= 0.95 * whole) AS p95_seconds,
       min(seconds) FILTER (WHERE seen >= 0.99 * whole) AS p99_seconds
FROM placed
GROUP BY hour_start, cluster, wait;

-- The busiest second of each minute over all proxies of a cluster, and how full arriving requests saw the fullest proxy
-- (null where it has no limit).
CREATE OR REPLACE VIEW arrivals_by_minute AS
WITH seconds AS (
  SELECT second, cluster, sum(requests) AS requests, sum(refused) AS refused,
         max(max_heap_used_bytes / nullif(heap_limit_bytes, 0)) AS heap_ratio,
         max(max_direct_used_bytes / nullif(direct_limit_bytes, 0)) AS direct_ratio
  FROM arrivals
  GROUP BY second, cluster
)
SELECT date_trunc('MINUTE', second) AS minute_start, cluster,
       sum(requests) AS requests, max(requests) AS busiest_second, sum(refused) AS refused,
       max(heap_ratio) AS heap_ratio, max(direct_ratio) AS direct_ratio
FROM seconds
GROUP BY date_trunc('MINUTE', second), cluster;

-- Storms, with who sent most of each. A share below a fifth means that nobody stands out.
CREATE OR REPLACE VIEW storms_and_leaders AS
SELECT s.date, s.cluster, s.storm, s.begin, s.requests, s.peak_rate, s.usual_rate, s.refused, s.served_seconds,
       n.name AS namespace, n.requests / s.requests AS namespace_share,
       p.name AS principal, p.requests / s.requests AS principal_share
FROM storms s
LEFT JOIN storm_members n
  ON n.date = s.date AND n.cluster <=> s.cluster AND n.storm = s.storm AND n.dimension = 'namespace' AND n.rank = 1
LEFT JOIN storm_members p
  ON p.date = s.date AND p.cluster <=> s.cluster AND p.storm = s.storm AND p.dimension = 'principal' AND p.rank = 1;

-- What shared answers saved, a day.
CREATE OR REPLACE VIEW savings_by_day AS
SELECT date, cluster,
       sum(coalesced) / sum(requests) AS coalesced_share,
       sum(questions_saved) AS questions_saved,
       sum(upstream_bytes_saved) AS upstream_bytes_saved,
       sum(heap_byte_seconds_saved) / 1073741824 AS heap_gib_seconds_saved
FROM sharing
GROUP BY date, cluster;

-- Topics whose producers were slowed, a day. `observed` means that they would have been.
CREATE OR REPLACE VIEW slowed_topics AS
SELECT date, cluster, proxy_id, topic, reason, observed,
       sum(seconds) AS seconds,
       sum(seconds * allowed_bytes_per_second) / sum(seconds * natural_bytes_per_second) AS allowed_share
FROM slowed
WHERE throttle = 'adaptive' AND topic IS NOT NULL
GROUP BY date, cluster, proxy_id, topic, reason, observed;

-- What was no event, by the day of its ingest.
CREATE OR REPLACE VIEW quarantined_by_day AS
SELECT date, reason, sum(copies) AS rows, min(source) AS a_source
FROM quarantine
GROUP BY date, reason;

-- Messages that match the LIKE pattern, by minute and router, in [$from, $to).
SELECT
  date_trunc('minute', collected_at) AS minute,
  router_host,
  router_ip,
  count(*) AS err_cnt
FROM s1_router_syslog_events
WHERE collected_at >= $from
  AND collected_at < $to
  AND syslog_message LIKE $pattern
GROUP BY date_trunc('minute', collected_at), router_host, router_ip
ORDER BY minute, router_host, router_ip

-- Log-ins by router, in [$from, $to).
SELECT router_host AS router, count(*) AS logins
FROM s1_router_syslog_events
WHERE collected_at >= $from
  AND collected_at < $to
  AND syslog_message LIKE '%cli_user_login%'
GROUP BY router_host
ORDER BY router_host

-- Routers and kinds of links that have a linkdown event in [$from, $to), each once.
SELECT DISTINCT router_ip, link_type
FROM s2_snmp_linkdown_events
WHERE event_at >= $from
  AND event_at < $to
  AND link_type IN ('CORE-METRO', 'CORE-EDGE')
  AND router_ip IS NOT NULL
ORDER BY router_ip, link_type

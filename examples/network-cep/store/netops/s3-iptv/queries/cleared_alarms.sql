-- Clearing events received in [$from, $to), each OLT and rule once.
SELECT DISTINCT olt_ip, rule_id
FROM s3_olt_alarm_events
WHERE eventhub_received_at >= $from
  AND eventhub_received_at < $to
  AND alarm_status = '0'
  AND olt_ip IS NOT NULL
  AND rule_id IS NOT NULL
ORDER BY olt_ip, rule_id

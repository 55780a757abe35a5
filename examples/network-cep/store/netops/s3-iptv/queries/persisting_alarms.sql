-- OLT alarms received in [$from, $since) that no clearing event in [$since, $to) has cancelled, each OLT and rule once.
SELECT olt_ip, rule_id, max(eventhub_received_at) AS received_at
FROM s3_olt_alarm_events a
WHERE eventhub_received_at >= $from
  AND eventhub_received_at < $since
  AND rule_id IN ('R001', 'R822')
  AND alarm_status IN ('1', '2')
  AND olt_ip IS NOT NULL
  AND NOT EXISTS (
    SELECT 1
    FROM s3_olt_alarm_events c
    WHERE c.eventhub_received_at >= $since
      AND c.eventhub_received_at < $to
      AND c.alarm_status = '0'
      AND c.olt_ip = a.olt_ip
      AND c.rule_id = a.rule_id
  )
GROUP BY olt_ip, rule_id
ORDER BY olt_ip, rule_id

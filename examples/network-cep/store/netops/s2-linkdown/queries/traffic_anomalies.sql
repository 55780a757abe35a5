-- Traffic of the devices against its forecast, by minute in [$from, $to). Columns and names are those that rule 2 gets.
-- A minute may have traffic and no forecast, or a forecast and no traffic.
WITH traffic AS (
  SELECT
    d.router_ip,
    d.link_type,
    d.local_device_name,
    date_trunc('minute', t.collected_at) AS minute,
    sum(CAST(coalesce(t.rx_bytes, 0) AS DOUBLE)) * 8 / (1e9 * 60) AS gbps
  FROM devices d
  JOIN s2_snmp_interface_traffic t
    ON t.router_ip = d.router_ip
    -- equal but for a trailing '.0', which counts only outside of CORE-METRO
    AND CASE WHEN t.if_name LIKE '%.0' THEN left(t.if_name, -2) ELSE t.if_name END
      = CASE WHEN d.if_name LIKE '%.0' THEN left(d.if_name, -2) ELSE d.if_name END
    AND (d.link_type = 'CORE-METRO' OR t.if_name = d.if_name)
  WHERE t.collected_at >= $from
    AND t.collected_at < $to
  GROUP BY d.router_ip, d.link_type, d.local_device_name, date_trunc('minute', t.collected_at)
),
forecast AS (
  SELECT
    d.router_ip,
    d.link_type,
    d.local_device_name,
    date_trunc('minute', f.ds) AS minute,
    -- what is no number is no bound
    avg(CASE WHEN abs(f.yhat_lower) < 1e300 THEN f.yhat_lower END) AS yhat_lower,
    avg(CASE WHEN abs(f.yhat_upper) < 1e300 THEN f.yhat_upper END) AS yhat_upper,
    max(f.phase) AS phase
  FROM (SELECT DISTINCT router_ip, link_type, local_device_name FROM devices) d
  JOIN s2_traffic_forecast f
    ON f.router_ip = d.router_ip AND f.link_type = d.link_type
  WHERE f.ds >= $from
    AND f.ds < $to
  GROUP BY d.router_ip, d.link_type, d.local_device_name, date_trunc('minute', f.ds)
)
SELECT
  coalesce(t.minute, f.minute) AS minute_kst,
  coalesce(t.router_ip, f.router_ip) AS router_ip,
  coalesce(t.local_device_name, f.local_device_name) AS local_device_name,
  coalesce(t.link_type, f.link_type) AS link_type,
  round(coalesce(t.gbps, 0), 2) AS actual_gbps,
  coalesce(f.yhat_lower, 0) AS yhat_lower_gbps,
  coalesce(f.yhat_upper, 0) AS yhat_upper_gbps,
  CASE
    WHEN coalesce(t.gbps, 0) > coalesce(f.yhat_upper, 999999) THEN 'high_anomaly'
    WHEN coalesce(t.gbps, 0) < coalesce(f.yhat_lower, -999999) THEN 'low_anomaly'
    ELSE 'normal'
  END AS anomaly_flag,
  coalesce(f.phase, 'unknown') AS phase
FROM traffic t
FULL OUTER JOIN forecast f
  ON f.router_ip = t.router_ip
  AND f.link_type = t.link_type
  AND f.local_device_name = t.local_device_name
  AND f.minute = t.minute
ORDER BY router_ip, link_type, local_device_name, minute_kst

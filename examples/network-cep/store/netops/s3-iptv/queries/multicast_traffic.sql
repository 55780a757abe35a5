-- Multicast packets sent by each of these interfaces: in the minute [$since, $to) and on average in [$from, $since).
-- Columns and names are those that rule 3-2 gets. What has no traffic there, or none before, has no ratio.
WITH nodes AS (
  SELECT DISTINCT ser_equip_ip, ser_phys_if_nm FROM interfaces
),
samples AS (
  SELECT n.ser_equip_ip, n.ser_phys_if_nm, t.collected_at, CAST(t.tx_multicast_pkts AS DOUBLE) AS packets
  FROM nodes n
  JOIN s3_snmp_interface_traffic t
    ON t.router_ip = n.ser_equip_ip AND t.if_name = n.ser_phys_if_nm
  WHERE t.collected_at >= $from
    AND t.collected_at < $to
),
before AS (
  SELECT ser_equip_ip, ser_phys_if_nm, avg(packets) AS packets
  FROM (
    SELECT ser_equip_ip, ser_phys_if_nm, sum(packets) AS packets
    FROM samples
    WHERE collected_at < $since
    GROUP BY ser_equip_ip, ser_phys_if_nm, date_trunc('minute', collected_at)
  )
  GROUP BY ser_equip_ip, ser_phys_if_nm
),
last AS (
  SELECT ser_equip_ip, ser_phys_if_nm, max(collected_at) AS collected_at, avg(packets) AS packets
  FROM (
    SELECT ser_equip_ip, ser_phys_if_nm, collected_at, sum(packets) AS packets
    FROM samples
    WHERE collected_at >= $since
    GROUP BY ser_equip_ip, ser_phys_if_nm, collected_at
  )
  GROUP BY ser_equip_ip, ser_phys_if_nm
)
SELECT
  n.ser_equip_ip,
  n.ser_phys_if_nm,
  last.collected_at AS last_collected_at,
  last.packets AS last_1m_tx_multicast_pkts,
  before.packets AS avg_3nm_tx_multicast_pkts,
  (last.packets - before.packets) / nullif(before.packets, 0) AS diff_ratio
FROM nodes n
LEFT JOIN before ON before.ser_equip_ip = n.ser_equip_ip AND before.ser_phys_if_nm = n.ser_phys_if_nm
LEFT JOIN last ON last.ser_equip_ip = n.ser_equip_ip AND last.ser_phys_if_nm = n.ser_phys_if_nm
ORDER BY n.ser_equip_ip, n.ser_phys_if_nm

-- From each OLT to the routers that serve it. The first hop is the device above the OLT; where that only aggregates
-- (AGG-OLT), the edge device above it is the second hop and serves. A router must be in the inventory.
WITH first_hop AS (
  SELECT o.olt_ip, o.rule_id, t.link_type, t.local_device_ip, t.local_phys_if
  FROM olts o
  JOIN s3_device_link_topology t
    ON t.remote_device_ip = o.olt_ip AND t.link_type IN ('EDGE-OLT', 'AGG-OLT')
),
second_hop AS (
  SELECT remote_device_ip, local_device_ip, local_phys_if
  FROM s3_device_link_topology
  WHERE link_type = 'EDGE-AGG' AND local_device_ip IS NOT NULL
),
serving AS (
  SELECT
    d1.olt_ip,
    d1.rule_id,
    CASE WHEN d2.local_device_ip IS NULL THEN d1.local_device_ip ELSE d2.local_device_ip END AS ser_equip_ip,
    CASE WHEN d2.local_device_ip IS NULL THEN d1.local_phys_if ELSE d2.local_phys_if END AS ser_phys_if_nm
  FROM first_hop d1
  LEFT JOIN second_hop d2
    ON d1.link_type = 'AGG-OLT' AND d2.remote_device_ip = d1.local_device_ip
)
SELECT DISTINCT s.olt_ip, s.rule_id, s.ser_equip_ip, s.ser_phys_if_nm
FROM serving s
JOIN s3_router_inventory i ON i.router_ip = s.ser_equip_ip
WHERE s.ser_phys_if_nm IS NOT NULL
ORDER BY ser_equip_ip, ser_phys_if_nm, olt_ip, rule_id

-- The devices on these links and the interfaces that they are reached by, a row for each row of the topology: as in any join,
-- the traffic of a link that the topology lists twice counts twice.
-- A topology row without a device's name can make no alarm.
SELECT
  l.router_ip,
  l.link_type,
  t.local_device_name,
  t.local_phys_if AS if_name
FROM links l
JOIN s2_device_link_topology t
  ON t.local_device_ip = l.router_ip AND t.link_type = l.link_type
WHERE t.local_device_name IS NOT NULL
ORDER BY router_ip, link_type, local_device_name, if_name

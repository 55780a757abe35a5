-- The devices on these links and the interfaces that they are reached by, each once: a link that the topology lists twice
-- must not count its traffic twice. Of CORE-METRO interfaces a trailing '.0' means nothing.
-- A topology row without a device's name can make no alarm.
SELECT DISTINCT
  l.router_ip,
  l.link_type,
  t.local_device_name,
  CASE WHEN l.link_type = 'CORE-METRO' AND t.local_phys_if LIKE '%.0'
    THEN left(t.local_phys_if, -2) ELSE t.local_phys_if END AS if_name
FROM links l
JOIN s2_device_link_topology t
  ON t.local_device_ip = l.router_ip AND t.link_type = l.link_type
WHERE t.local_device_name IS NOT NULL
ORDER BY router_ip, link_type, local_device_name, if_name

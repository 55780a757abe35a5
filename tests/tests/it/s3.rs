//! S3 from source to Delta alarm: the spec's starter data with rule 3-1 changed while it runs, the injector's data, the walk
//! through the topology, and what cancels, clears or cannot be compared.

use serde_json::{Value, json};
use weir_model::alarm::{AlarmChange, AlarmStatus};
use weir_model::port::Ledger;
use weir_model::service::Service;
use weir_model::{BatchId, RunKey, Severity, SinkId, Time};

use crate::support::example::{Example, Live};
use crate::support::feed;

const INTERVAL: &str = "netops/s3-iptv/rules/3-1.json";
const TOPOLOGY: &str = "netops/s3-iptv/tables/s3_device_link_topology.csv";
const INVENTORY: &str = "netops/s3-iptv/tables/s3_router_inventory.csv";

const B211: &str = "198.51.100.211 9/2/1";
const B212: &str = "198.51.100.212 9/1/1";

/// A row of `s3_results`.
#[derive(Debug, PartialEq)]
struct Surge {
    /// Hour and minute of T.
    minute: String,
    interface: String,
    ratio: f64,
    last: i64,
    average: f64,
}

fn results(example: &Example, live: &Live) -> Vec<Surge> {
    let rows = example.rows(
        live,
        "select cast(created_at as varchar) as at, ser_equip_ip, ser_phys_if_nm, diff_ratio, last_1m_val, avg_3nm_val, \
         created_at = _batch_time as stamped from s3_results order by created_at, ser_equip_ip",
    );
    rows.iter()
        .map(|row| {
            assert_eq!(row["stamped"], true, "{row}");
            let text = |name: &str| row[name].as_str().unwrap();
            Surge {
                minute: text("at")[11..16].to_owned(),
                interface: format!("{} {}", text("ser_equip_ip"), text("ser_phys_if_nm")),
                ratio: row["diff_ratio"].as_f64().unwrap(),
                last: row["last_1m_val"].as_i64().unwrap(),
                average: row["avg_3nm_val"].as_f64().unwrap(),
            }
        })
        .collect()
}

fn where_and_when(surges: &[Surge]) -> Vec<(&str, &str)> {
    surges.iter().map(|s| (s.minute.as_str(), s.interface.as_str())).collect()
}

/// Another answer of rule 3-1, as an operator edits it. Its sample case says 3 and goes with it.
fn interval(example: &Example, live: &Live, from: &str, to: &str) {
    let before = live.host.status().unwrap().scenarios[0].ruleset.unwrap();
    let _ = std::fs::remove_file(example.store().join("netops/s3-iptv/rules/3-1.cases.json"));
    example.edit(INTERVAL, &format!("interval: {from} "), &format!("interval: {to} "));
    example.until(live, "the edit is active", |v| {
        v.pending.is_none() && v.active.as_ref().is_some_and(|a| a.ruleset.digest != before)
    });
}

#[test]
fn starter_data_surges_once_in_ten_minutes_and_in_four_of_ten_with_an_interval_of_two() {
    let example = Example::of("s3-iptv");
    let live = example.open();
    assert_eq!(example.batches(&live), 1, "an hour of history is there: it is warm");
    for _ in 1..20 {
        assert_eq!(example.minute(&live), 1);
    }
    let surges = results(&example, &live);
    // minute 9 of ten is compared three minutes later
    assert_eq!(where_and_when(&surges), [("12:02", B211), ("12:02", B212), ("12:12", B211), ("12:12", B212)]);
    for surge in &surges {
        assert_eq!((surge.last, surge.average), (1_000_000_000_000, 12_345_679_000.0));
        assert!((surge.ratio - 80.000_000_081).abs() < 1e-9, "{surge:?}");
    }
    let alarms = live.host.alarms(None, true).unwrap();
    let seen: Vec<_> = alarms.iter().map(|a| (a.key.join(" "), a.severity, a.status)).collect();
    let cleared = |key: &str| (key.to_owned(), Severity::Major, AlarmStatus::Cleared);
    assert_eq!(seen, [cleared(B211), cleared(B212)], "quiet for five minutes");
    let events = live.host.events(&Default::default(), 100, 0).unwrap().events;
    let of_211: Vec<_> = events.iter().filter(|e| e.alarm.key[1] == "9/2/1").map(|e| (e.change, e.batch.0)).collect();
    let life = [AlarmChange::Opened, AlarmChange::Cleared, AlarmChange::Reopened, AlarmChange::Cleared];
    assert_eq!(of_211, life.into_iter().zip([3, 8, 13, 18]).collect::<Vec<_>>());
    assert_eq!(
        events[0].alarm.message,
        "198.51.100.211 9/2/1: 1000000000000 multicast packets a minute, 12345679000 on average before; \
         behind OLT 192.0.2.23 (R822)"
    );
    assert_eq!(events[0].because.len(), 2, "the traffic, and the way that led there");

    interval(&example, &live, "3", "2");
    for _ in 20..30 {
        example.minute(&live);
    }
    let surges = results(&example, &live).split_off(4);
    // the minutes 6, 7, 8 and 9 of ten, two minutes later
    let expected: Vec<_> =
        ["12:20", "12:21", "12:28", "12:29"].into_iter().flat_map(|m| [(m, B211), (m, B212)]).collect();
    assert_eq!(where_and_when(&surges), expected);
    assert!(surges.iter().all(|s| (s.ratio - 53.000_054).abs() < 1e-6), "{surges:?}");

    // The edge behind the aggregation node is judged too: its traffic never changes, which a rule can ask for.
    let before = live.host.status().unwrap().scenarios[0].ruleset.unwrap();
    std::fs::remove_file(example.store().join("netops/s3-iptv/rules/3-2.cases.json")).unwrap();
    example.edit("netops/s3-iptv/rules/3-2.json", ">= 0.2", "=== 0");
    example.until(&live, "the edit is active", |v| v.active.as_ref().is_some_and(|a| a.ruleset.digest != before));
    example.minute(&live);
    let still = results(&example, &live).split_off(12);
    let expected = Surge {
        minute: "12:30".into(),
        interface: "198.51.100.213 9/3/1".into(),
        ratio: 0.0,
        last: 5000,
        average: 5000.0,
    };
    assert_eq!(still, [expected]);
}

#[test]
fn an_interval_beyond_the_hot_window_reads_bronze_and_the_values_are_right() {
    let example = Example::of("s3-iptv");
    let live = example.open();
    example.batches(&live);
    drop(live);
    // the window that is read back has the twenty minutes of the stream's retention
    let live = example.open();
    interval(&example, &live, "3", "10");
    for _ in 1..=10 {
        assert_eq!(example.minute(&live), 1);
    }
    // Minute 11:59 against the thirty before it, of which each has 1000 * 10^(m mod 10) packets.
    let packets = |minute: u32| 1000.0 * 10_f64.powi((minute % 10).try_into().unwrap());
    let average = (29..59).map(packets).sum::<f64>() / 30.0;
    let surges = results(&example, &live).split_off(0);
    assert_eq!(where_and_when(&surges), [("12:09", B211), ("12:09", B212)]);
    for surge in &surges {
        assert_eq!((surge.last, surge.average), (1_000_000_000_000, average));
        assert!((surge.ratio - (1e12 - average) / average).abs() < 1e-9, "{surge:?}");
    }
}

#[test]
fn a_replay_gives_the_same_rows_and_changes_after_rule_and_topology_were_changed() {
    let example = Example::of("s3-iptv");
    let live = example.open();
    example.batches(&live);
    example.minute(&live);
    example.minute(&live);
    let key = RunKey::live(example.scenario());
    let record = live.built.ledger.record(&key, BatchId(3)).unwrap().unwrap();
    let output = crate::support::fakes::name("s3_results");
    let kept = live.built.ledger.outputs(&SinkId { key, output: output.clone() }, Some(BatchId(2)), 1).unwrap();
    let digest = weir_pipeline::output::rows_digest(&kept[0].rows).unwrap();

    interval(&example, &live, "3", "2");
    let before = live.host.status().unwrap().scenarios[0].ruleset.unwrap();
    example.write(INVENTORY, b"router_ip\n198.51.100.211\n");
    example.until(&live, "the inventory is active", |v| v.active.as_ref().is_some_and(|a| a.ruleset.digest != before));
    example.minute(&live);
    // beyond the hot window, after a restart: rows come from bronze
    drop(live);
    example.clock.advance(std::time::Duration::from_secs(40 * 60));
    let live = example.open();
    let side = live.host.side(&example.scenario(), record.plan.time, false).unwrap();
    assert_eq!((side.replayed, side.plan.ruleset), (Some(BatchId(3)), record.plan.ruleset));
    assert_eq!((side.outputs[&output].rows.len(), side.output_digests[&output]), (2, digest));
    assert_eq!((side.events.len(), side.events), (2, record.events));
}

#[test]
fn the_injector_gives_two_alarms_where_the_spike_falls_into_the_last_minute() {
    let example = Example::of("s3-iptv");
    example.inject("s3_snmp_interface_traffic.toml");
    let live = example.open();
    example.batches(&live);
    for _ in 1..10 {
        example.minute(&live);
    }
    let surges = results(&example, &live);
    assert_eq!(where_and_when(&surges), [("12:03", B211), ("12:03", B212), ("12:08", B211), ("12:08", B212)]);
    for surge in &surges {
        assert_eq!((surge.ratio, surge.last, surge.average), (4.0, 1000, 200.0));
    }
}

#[test]
fn while_the_injector_warms_up_the_baseline_is_of_the_minutes_that_are_there() {
    let example = Example::of("s3-iptv");
    // one spike and two other minutes before the spike of 12:00
    let minutes = [("11:55", 1000), ("11:56", 100), ("11:57", 100), ("12:00", 1000)];
    feed_traffic(
        &example,
        minutes.iter().flat_map(|(minute, packets)| {
            [(*minute, "198.51.100.211", "9/2/1", Some(*packets)), (*minute, "198.51.100.212", "9/1/1", Some(*packets))]
        }),
    );
    let live = example.open();
    example.batches(&live);
    for _ in 1..=4 {
        example.minute(&live);
    }
    let surges = results(&example, &live);
    // 11:57 is below its baseline, 12:00 is not: (1000 - 400) / 400
    assert_eq!(where_and_when(&surges), [("12:03", B211), ("12:03", B212)]);
    for surge in &surges {
        assert_eq!((surge.ratio, surge.last, surge.average), (1.5, 1000, 400.0));
    }
}

/// Traffic of the test's own: minute, router, interface, packets.
fn feed_traffic<'a>(example: &Example, samples: impl Iterator<Item = (&'a str, &'a str, &'a str, Option<i64>)>) {
    let values: Vec<String> = samples
        .map(|(minute, router, interface, packets)| {
            let packets = packets.map_or("CAST(NULL AS BIGINT)".to_owned(), |p| p.to_string());
            let minute = if minute.len() == 5 { format!("{minute}:10") } else { minute.to_owned() };
            format!("('2026-01-31T{minute}Z', '{router}', '{interface}', {packets})")
        })
        .collect();
    let columns = "collected_at, router_ip, if_name, tx_multicast_pkts";
    feed::stream(example, "s3_snmp_interface_traffic", columns, &values.join(", "));
}

/// OLT events of the test's own: time, OLT, rule, status.
fn feed_events(example: &Example, events: &[(&str, &str, &str, &str)]) {
    let values: Vec<String> = events
        .iter()
        .map(|(time, olt, rule, status)| format!("('2026-01-31T{time}Z', '{olt}', '{rule}', '{status}')"))
        .collect();
    let columns = "eventhub_received_at, olt_ip, rule_id, alarm_status";
    feed::stream(example, "s3_olt_alarm_events", columns, &values.join(", "));
}

/// Which OLTs are behind which interface, one each, so that an interface tells of its OLT.
fn one_interface_each(example: &Example, olts: &[&str]) {
    let links: Vec<[String; 5]> = olts
        .iter()
        .enumerate()
        .map(|(i, olt)| ["EDGE-OLT", "edge", &format!("10.0.0.{i}"), "1/1", olt].map(str::to_owned))
        .collect();
    let links: Vec<[&str; 5]> = links.iter().map(|l| l.each_ref().map(String::as_str)).collect();
    feed::topology(example, TOPOLOGY, &links);
    let routers: Vec<String> = (0..olts.len()).map(|i| format!("10.0.0.{i}")).collect();
    example.write(INVENTORY, format!("router_ip\n{}\n", routers.join("\n")).as_bytes());
    let samples = routers.iter().flat_map(|router| [("11:50", 100), ("11:57", 200)].map(|(m, p)| (m, router, p)));
    let samples: Vec<_> = samples.collect();
    feed_traffic(example, samples.iter().map(|(m, router, p)| (*m, router.as_str(), "1/1", Some(*p))));
}

#[test]
fn only_alarms_of_the_right_minute_rule_and_status_that_nothing_cancelled_persist() {
    let example = Example::of("s3-iptv");
    // With n = 3 the batch of 12:00 takes alarms of [11:56, 11:57) and clearing events of [11:57, 12:00).
    let events = [
        ("11:55:59.999999", "olt-too-early", "R001", "1"),
        ("11:56:00", "olt-first-instant", "R001", "1"),
        ("11:56:10", "olt-cleared-before", "R001", "0"),
        ("11:56:20", "olt-cleared-before", "R001", "1"),
        ("11:56:20", "olt-status-2", "R822", "2"),
        ("11:56:20", "olt-status-3", "R822", "3"),
        ("11:56:20", "olt-other-rule", "R823", "1"),
        ("11:56:20", "olt-cleared", "R822", "1"),
        ("11:56:20", "olt-cleared-late", "R822", "1"),
        ("11:56:20", "olt-cleared-after", "R822", "1"),
        ("11:56:20", "olt-cleared-other-rule", "R822", "1"),
        ("11:56:20", "olt-raised-again", "R822", "1"),
        ("11:56:30", "olt-both-rules", "R001", "1"),
        ("11:56:30", "olt-both-rules", "R822", "2"),
        ("11:56:59.999999", "olt-last-instant", "R822", "1"),
        ("11:57:00", "olt-too-late", "R001", "1"),
        ("11:57:00", "olt-cleared", "R822", "0"),
        ("11:57:30", "olt-raised-again", "R822", "0"),
        ("11:58:00", "olt-cleared-other-rule", "R001", "0"),
        ("11:58:00", "olt-both-rules", "R001", "0"),
        ("11:58:00", "olt-raised-again", "R822", "1"),
        ("11:59:59.999999", "olt-cleared-late", "R822", "0"),
        ("12:00:00", "olt-cleared-after", "R822", "0"),
    ];
    feed_events(&example, &events);
    let mut olts: Vec<&str> = events.iter().map(|e| e.1).collect();
    olts.sort_unstable();
    olts.dedup();
    one_interface_each(&example, &olts);
    let live = example.open();
    assert_eq!(example.batches(&live), 1);
    let persisting = [
        "olt-both-rules",
        "olt-cleared-after",
        "olt-cleared-before",
        "olt-cleared-other-rule",
        "olt-first-instant",
        "olt-last-instant",
        "olt-status-2",
    ];
    let expected: Vec<String> = olts
        .iter()
        .enumerate()
        .filter(|(_, olt)| persisting.contains(olt))
        .map(|(i, _)| format!("10.0.0.{i} 1/1"))
        .collect();
    let surges = results(&example, &live);
    let mut seen: Vec<String> = surges.iter().map(|s| s.interface.clone()).collect();
    seen.sort();
    let mut sorted = expected;
    sorted.sort();
    assert_eq!(seen, sorted);
    assert!(surges.iter().all(|s| (s.ratio, s.last, s.average) == (1.0, 200, 100.0)), "{surges:?}");

    // The batch of 12:01 sees the clearing event of 12:00.
    example.minute(&live);
    let cleared: Vec<_> = live.host.alarms(None, true).unwrap();
    let cleared: Vec<_> = cleared.iter().filter(|a| a.status == AlarmStatus::Cleared).collect();
    assert_eq!(cleared.len(), 1);
    let at = olts.iter().position(|olt| *olt == "olt-cleared-after").unwrap();
    assert_eq!(
        (cleared[0].key[0].as_str(), cleared[0].cleared_at),
        (format!("10.0.0.{at}").as_str(), time("12:01:00"))
    );
}

fn time(clock: &str) -> Option<Time> {
    Some(format!("2026-01-31T{clock}Z").parse().unwrap())
}

#[test]
fn the_walk_ends_at_the_edge_behind_an_aggregation_node_and_only_at_routers_of_the_inventory() {
    let example = Example::of("s3-iptv");
    let events: Vec<_> =
        ["olt-1", "olt-2", "olt-3", "olt-4"].iter().map(|olt| ("11:56:10", *olt, "R001", "1")).collect();
    feed_events(&example, &events);
    feed::topology(
        &example,
        TOPOLOGY,
        &[
            ["EDGE-OLT", "e1", "10.0.0.1", "1/1", "olt-1"],
            // the same link twice, and another interface of the same router to another OLT
            ["EDGE-OLT", "e1", "10.0.0.1", "1/1", "olt-1"],
            ["EDGE-OLT", "e1", "10.0.0.1", "1/2", "olt-2"],
            // one interface for two OLTs
            ["EDGE-OLT", "e1", "10.0.0.1", "1/1", "olt-2"],
            ["EDGE-OLT", "e2", "10.0.0.2", "1/1", "olt-1"],
            ["CORE-OLT", "c1", "10.0.0.3", "1/1", "olt-1"],
            // over an aggregation node to two edges; its own interface does not serve
            ["AGG-OLT", "a1", "10.0.1.1", "5/1", "olt-3"],
            ["EDGE-AGG", "e4", "10.0.0.4", "1/1", "10.0.1.1"],
            ["EDGE-AGG", "e5", "10.0.0.5", "1/1", "10.0.1.1"],
            ["CORE-AGG", "e6", "10.0.0.6", "1/1", "10.0.1.1"],
            // an aggregation node with no edge above serves itself
            ["AGG-OLT", "a2", "10.0.1.2", "5/1", "olt-4"],
            // an edge hangs above an edge that serves an OLT: no second hop from there
            ["EDGE-AGG", "e7", "10.0.0.7", "1/1", "10.0.0.2"],
            // no address, no interface
            ["EDGE-OLT", "x", "", "1/1", "olt-1"],
            ["EDGE-OLT", "x", "10.0.0.8", "", "olt-1"],
        ],
    );
    // all routers but e5
    let routers: Vec<String> = [1, 2, 3, 4, 6, 7, 8].iter().map(|i| format!("10.0.0.{i}")).collect();
    let nodes = ["10.0.1.1", "10.0.1.2"];
    let inventory = [routers.join("\n"), nodes.join("\n"), "10.0.0.1".to_owned()];
    example.write(INVENTORY, format!("router_ip\n{}\n", inventory.join("\n")).as_bytes());
    let mut interfaces: Vec<(String, &str)> = (1..=8).map(|i| (format!("10.0.0.{i}"), "1/1")).collect();
    interfaces.push(("10.0.0.1".to_owned(), "1/2"));
    interfaces.extend(nodes.map(|node| (node.to_owned(), "5/1")));
    let mut samples = Vec::new();
    for (minute, packets) in [("11:50", 100), ("11:57", 200)] {
        samples.extend(interfaces.iter().map(|(router, name)| (minute, router.as_str(), *name, Some(packets))));
    }
    feed_traffic(&example, samples.into_iter());
    let live = example.open();
    assert_eq!(example.batches(&live), 1);
    let surges = results(&example, &live);
    let mut seen: Vec<&str> = surges.iter().map(|s| s.interface.as_str()).collect();
    seen.sort_unstable();
    assert_eq!(seen, ["10.0.0.1 1/1", "10.0.0.1 1/2", "10.0.0.2 1/1", "10.0.0.4 1/1", "10.0.1.2 5/1"]);
    // traffic of an interface that several ways lead to counts once
    assert!(surges.iter().all(|s| (s.ratio, s.last, s.average) == (1.0, 200, 100.0)), "{surges:?}");
    let alarms = live.host.alarms(None, false).unwrap();
    let shared = alarms.iter().find(|a| a.key == ["10.0.0.1", "1/1"]).unwrap();
    assert!(shared.message.ends_with("behind OLT olt-1 (R001), OLT olt-2 (R001)"), "{}", shared.message);

    // the edge that was not in the inventory comes into it while the host runs
    let before = live.host.status().unwrap().scenarios[0].ruleset.unwrap();
    example.write(INVENTORY, b"router_ip\n10.0.0.5\n");
    example.until(&live, "the inventory is active", |v| v.active.as_ref().is_some_and(|a| a.ruleset.digest != before));
    let at = "2026-01-31T12:00:00Z".parse().unwrap();
    let latest = live.host.side(&example.scenario(), at, true).unwrap();
    let rows = &latest.outputs["s3_results"].rows;
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["ser_equip_ip"], "10.0.0.5");
}

/// A rule that answers every row that it gets as an alarm's severity.
const ECHO: &str =
    "function handler({ $nodes, ...input }) { return { is_alarm: true, severity: JSON.stringify(input) }; }";

#[test]
fn rule_3_2_gets_means_of_sums_and_no_ratio_where_there_is_nothing_to_compare() {
    let example = Example::of("s3-iptv");
    let olts = ["sums", "zero", "no-baseline", "no-traffic", "null-packets", "rounded"];
    let events: Vec<_> = olts.iter().map(|olt| ("11:56:10", *olt, "R822", "1")).collect();
    feed_events(&example, &events);
    one_interface_each(&example, &olts);
    let router = |olt: &str| format!("10.0.0.{}", olts.iter().position(|o| *o == olt).unwrap());
    // baseline [11:48, 11:57), last minute [11:57, 11:58)
    let samples: [(&str, &str, Option<i64>); 23] = [
        ("11:47:59.999999", "sums", Some(1_000_000)),
        ("11:48:00", "sums", Some(100)),
        ("11:48:30", "sums", Some(200)),
        ("11:49:59.999999", "sums", Some(100)),
        ("11:50:00", "zero", Some(0)),
        ("11:51:00", "zero", Some(0)),
        ("11:52:00", "null-packets", None),
        ("11:53:00", "null-packets", Some(100)),
        ("11:53:10", "null-packets", None),
        ("11:55:00", "rounded", Some(1)),
        ("11:56:00", "no-traffic", Some(100)),
        ("11:56:59.999999", "sums", Some(200)),
        ("11:57:00", "sums", Some(300)),
        ("11:57:00", "sums", Some(300)),
        ("11:57:00", "zero", Some(500)),
        ("11:57:10", "no-baseline", Some(500)),
        ("11:57:20", "null-packets", Some(50)),
        ("11:57:30", "null-packets", None),
        ("11:57:30", "rounded", Some(1)),
        ("11:57:40", "rounded", Some(2)),
        ("11:57:59.999999", "sums", Some(100)),
        ("11:58:00", "sums", Some(1_000_000)),
        ("11:58:00", "no-traffic", Some(1_000_000)),
    ];
    let named: Vec<_> = samples.iter().map(|(time, olt, packets)| (*time, router(olt), *packets)).collect();
    feed_traffic(&example, named.iter().map(|(time, router, packets)| (*time, router.as_str(), "1/1", *packets)));
    let rule = "netops/s3-iptv/rules/3-2.json";
    let starter = std::fs::read(example.store().join(rule)).unwrap();
    let mut echo: Value = serde_json::from_slice(&starter).unwrap();
    echo["nodes"][1]["content"] = ECHO.into();
    example.write(rule, echo.to_string().as_bytes());
    std::fs::remove_file(example.store().join("netops/s3-iptv/rules/3-2.cases.json")).unwrap();
    let live = example.open();
    assert_eq!(example.batches(&live), 1);

    // the echo is kept where an outcome is remembered
    let got = echoed(&example, &live);
    let row = |olt: &str, at: Value, last: Value, average: Value, ratio: Value| {
        json!({"ser_equip_ip": router(olt), "ser_phys_if_nm": "1/1", "last_collected_at": at,
            "last_1m_tx_multicast_pkts": last, "avg_3nm_tx_multicast_pkts": average, "diff_ratio": ratio})
    };
    let expected = [
        // minutes of 300, 100 and 200; samples of 600 and 100
        row("sums", json!("2026-01-31T11:57:59.999999Z"), json!(350), json!(200), json!(0.75)),
        row("zero", json!("2026-01-31T11:57:00Z"), json!(500), json!(0), Value::Null),
        row("no-baseline", json!("2026-01-31T11:57:10Z"), json!(500), Value::Null, Value::Null),
        row("no-traffic", Value::Null, Value::Null, json!(100), Value::Null),
        // a null is no count: minutes and samples that have nothing else are not averaged
        row("null-packets", json!("2026-01-31T11:57:30Z"), json!(50), json!(100), json!(-0.5)),
        row("rounded", json!("2026-01-31T11:57:40Z"), json!(1.5), json!(1), json!(0.5)),
    ];
    assert_eq!(got, expected);

    // by the starter rule those without a ratio are no alarm
    let before = live.host.status().unwrap().scenarios[0].ruleset.unwrap();
    example.write(rule, &starter);
    example
        .until(&live, "the starter rule is active", |v| v.active.as_ref().is_some_and(|a| a.ruleset.digest != before));
    let at = "2026-01-31T12:00:00Z".parse().unwrap();
    let side = live.host.side(&example.scenario(), at, true).unwrap();
    let seen: Vec<_> = side.outputs["s3_results"]
        .rows
        .iter()
        .map(|r| (r["ser_equip_ip"].clone(), r["last_1m_val"].clone(), r["diff_ratio"].clone()))
        .collect();
    assert_eq!(
        seen,
        [
            (json!(router("sums")), json!(350), json!(0.75)),
            // 1.5 to the nearest whole number
            (json!(router("rounded")), json!(2), json!(0.5)),
        ]
    );
}

/// What rule 3-2 got in the first batch, in the order of the routers.
fn echoed(example: &Example, live: &Live) -> Vec<Value> {
    use weir_model::batch::Space;
    let key = RunKey::live(example.scenario());
    let reader = live.built.ledger.state(&key).unwrap();
    let mut rows: Vec<Value> = reader
        .scan(&Space::Plugin(1), b"reported/", None, 100)
        .unwrap()
        .into_iter()
        .map(|(_, value)| {
            // the minute, then `alarm/` and the severity that the rule answered, with '/' and '%' escaped
            let text = String::from_utf8(value.value).unwrap();
            let json =
                text.strip_prefix("2026-01-31T12:00:00Z alarm/").unwrap().replace("%2F", "/").replace("%25", "%");
            serde_json::from_str(&json).unwrap()
        })
        .collect();
    rows.sort_by_key(|row| row["ser_equip_ip"].to_string());
    rows
}

//! The example as a whole: three scenarios in one host, and the injector's data put in the place of the starter's while it
//! runs.

use std::time::Duration;

use serde_json::{Value, json};
use weir_model::port::RuleStore;
use weir_model::{Clock, ScenarioId};
use weir_pipeline::scenario::Step;

use crate::support::example::{Example, Live};

fn ids() -> [ScenarioId; 3] {
    ["netops/s1-syslog", "netops/s2-linkdown", "netops/s3-iptv"].map(|id| id.parse().unwrap())
}

/// The batches of this minute, brought to the tables.
fn batches(live: &Live) {
    live.host.reconcile().unwrap();
    for id in ids() {
        let step = live.host.step(&id).unwrap();
        assert!(matches!(step, Step::Committed(_)), "{id}: {step:?}");
    }
    assert_eq!(live.host.settle().unwrap(), Vec::new());
}

/// The batches of so many minutes more.
fn minutes(example: &Example, live: &Live, count: u32) {
    for _ in 0..count {
        let now = example.clock.now();
        let half = now.floor(Duration::from_secs(60), Duration::ZERO).plus(Duration::from_secs(90));
        example.clock.advance(half.since(now));
        batches(live);
    }
}

/// Who was alarming in batches from T on, and what shows it, each once.
fn alarming(example: &Example, live: &Live, from: &str) -> Vec<Value> {
    let of = |table: &str, scenario: &str, who: &str, shows: &str| {
        format!(
            "select '{scenario}' as scenario, {who} as who, {shows} as shows from {table} \
             where _batch_time >= timestamp '2026-01-31T{from}Z'"
        )
    };
    let all = [
        of("s1_results", "S1", "router_ip", "concat(severity, ' ', error_count)"),
        of("s2_results", "S2", "local_device_name", "concat(high_count, ' ', low_count)"),
        of("s3_results", "S3", "ser_equip_ip", "cast(round(diff_ratio, 6) as varchar)"),
    ];
    example.rows(live, &format!("select distinct * from ({}) order by 1, 2, 3", all.join(" union all ")))
}

fn row(scenario: &str, who: &str, shows: &str) -> Value {
    json!({"scenario": scenario, "who": who, "shows": shows})
}

#[test]
fn three_scenarios_run_in_one_host_and_the_injector_takes_the_place_of_the_starter_data() {
    let example = Example::all();
    let live = example.open();
    for id in ids() {
        let view = example.wait_for(&live, &id, "it is active", |v| v.pending.is_none());
        assert_eq!(view.rejected, None, "{id}");
    }
    batches(&live);
    minutes(&example, &live, 9);
    let starter = [
        row("S1", "203.0.113.33", "Warning 10"),
        row("S1", "203.0.113.34", "Critical 50"),
        row("S2", "Router-A-1", "2 0"),
        row("S2", "Router-A-3", "0 2"),
        row("S3", "198.51.100.211", "80.0"),
        row("S3", "198.51.100.212", "80.0"),
    ];
    assert_eq!(alarming(&example, &live, "12:00:00"), starter);

    let digest = |id: &ScenarioId| live.built.store.scenario(id).unwrap().active.unwrap().ruleset.digest;
    let before = ids().map(|id| (digest(&id), id));
    for stream in ["s1_router_syslog_events", "s2_snmp_interface_traffic", "s3_snmp_interface_traffic"] {
        example.inject(&format!("{stream}.toml"));
    }
    for (before, id) in before {
        example.wait_for(&live, &id, "the injector's stream is active", |v| {
            v.pending.is_none() && v.active.as_ref().is_some_and(|a| a.ruleset.digest != before)
        });
    }
    // From 12:10 on; twelve minutes later the old data is out of S3's baseline, and the spike of 12:20 is compared at 12:23.
    minutes(&example, &live, 15);
    let injected = [
        row("S1", "203.0.113.34", "Critical 60"),
        row("S2", "Router-A-1", "2 0"),
        row("S2", "Router-A-2", "2 0"),
        row("S2", "Router-A-3", "2 0"),
        row("S2", "Router-A-4", "2 0"),
        row("S3", "198.51.100.211", "4.0"),
        row("S3", "198.51.100.212", "4.0"),
    ];
    assert_eq!(alarming(&example, &live, "12:15:00"), injected);
}

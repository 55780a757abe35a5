//! S1 in both of its forms, as a plugin and as `[detect]`, on the same data and rules: they agree.

use std::fmt::Write as _;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use weir_model::port::{Ledger, RuleStore};
use weir_model::service::{ScenarioState, Service};
use weir_model::{Clock as _, RunKey, ScenarioId, Time};
use weir_pipeline::scenario::Step;

use crate::support::example::{Example, Live};

const PLUGIN: &str = "netops/s1-syslog";
const DECLARED: &str = "netops/s1-rule-only";

fn ids() -> [ScenarioId; 2] {
    [PLUGIN, DECLARED].map(|id| id.parse().unwrap())
}

fn open(example: &Example) -> Live {
    let live = example.open();
    settled(example, &live);
    live.host.reconcile().unwrap();
    live
}

/// Waits until the store is at rest and every scenario has what its folder says.
fn settled(example: &Example, live: &Live) {
    for id in ids() {
        let view = example.wait_for(live, &id, "the folder is active", |v| v.pending.is_none() && v.active.is_some());
        assert_eq!(view.rejected, None);
    }
}

/// Writes a rule into both scenarios and waits until both run on it.
fn swap(example: &Example, live: &Live, rule: &str) {
    for id in ids() {
        let before = live.built.store.scenario(&id).unwrap().active.unwrap().ruleset.digest;
        example.write(&format!("{id}/rules/1-2.json"), rule.as_bytes());
        example.wait_for(live, &id, "the rule is active", |v| {
            v.pending.is_none() && v.active.as_ref().is_some_and(|a| a.ruleset.digest != before)
        });
    }
}

/// The next minute's batch of both.
fn minute(example: &Example, live: &Live) {
    let next = example.clock.now().floor(std::time::Duration::from_secs(60), Default::default());
    example.clock.advance(next.plus(std::time::Duration::from_secs(90)).since(example.clock.now()));
    batches(live);
}

fn batches(live: &Live) {
    live.host.reconcile().unwrap();
    for id in ids() {
        loop {
            match live.host.step(&id).unwrap() {
                Step::Committed(_) => {}
                Step::NotDue(_) => break,
                other => panic!("{id}: {other:?}"),
            }
        }
    }
    assert_eq!(live.host.settle().unwrap(), Vec::new());
}

/// Rows of a form's results, by batch.
fn results(example: &Example, live: &Live, table: &str) -> Vec<Value> {
    example.rows(
        live,
        &format!(
            "select _batch_time, alarm_time, router_name, router_ip, error_count, severity, alarm_reason, processing_time \
             from {table} order by _batch_time, processing_time, router_name, router_ip"
        ),
    )
}

/// Changes of a form's alarms.
fn changes(example: &Example, live: &Live, id: &ScenarioId) -> Vec<Value> {
    example.rows(
        live,
        &format!(
            "select _batch_time, key, change, severity, severity_before, message, fields, count, because from alarm_events \
             where _scenario = '{id}' order by _batch_time, key"
        ),
    )
}

fn agree(example: &Example, live: &Live, note: &str) -> (usize, usize) {
    let [plugin, declared] = ids();
    let rows = results(example, live, "s1_results");
    assert_eq!(rows, results(example, live, "s1_rule_only_results"), "{note}: results");
    let events = changes(example, live, &plugin);
    assert_eq!(events, changes(example, live, &declared), "{note}: alarm events");
    let current = |id| -> Vec<Value> {
        let alarms = live.host.alarms(Some(id), true).unwrap().into_iter();
        alarms
            .map(|a| {
                json!([
                    a.key,
                    a.status,
                    a.severity,
                    a.message,
                    a.opened_at,
                    a.last_seen,
                    a.cleared_at,
                    a.count,
                    a.quiet
                ])
            })
            .collect()
    };
    assert_eq!(current(&plugin), current(&declared), "{note}: current alarms");
    let outcomes = |id: &ScenarioId| -> Vec<_> {
        let records = live.built.ledger.records(&RunKey::live(id.clone()), None, 10_000).unwrap().into_iter();
        records.map(|r| (r.plan.time, r.outcome, r.raised)).collect()
    };
    assert_eq!(outcomes(&plugin), outcomes(&declared), "{note}: outcomes");
    (rows.len(), events.len())
}

#[test]
fn both_forms_agree_on_the_starter_data_and_the_rule_is_swapped_live() {
    let example = Example::some(&["s1-syslog", "s1-rule-only"]);
    let live = open(&example);
    batches(&live);
    minute(&example, &live);
    assert_eq!(agree(&example, &live, "starter"), (6, 2));
    let expected = |n: &str, count: i64, severity: &str, reason: &str, minute: &str| {
        json!({"router_ip": format!("203.0.113.{n}"), "error_count": count, "severity": severity, "alarm_reason": reason,
            "minute": format!("2026-01-31T{minute}:00Z")})
    };
    let last = |batch: i64| {
        example.rows(
            &live,
            &format!(
                "select router_ip, error_count, severity, alarm_reason, cast(processing_time as varchar) as minute \
                 from s1_rule_only_results where _batch_id = {batch} order by processing_time, router_ip"
            ),
        )
    };
    let warning = |minute| expected("33", 10, "Warning", "Threshold >= 10", minute);
    assert_eq!(last(2), [warning("12:00"), expected("34", 50, "Critical", "Threshold >= 50", "12:00")]);

    let rule = std::fs::read_to_string(example.store().join(format!("{DECLARED}/rules/1-2.json"))).unwrap();
    swap(&example, &live, &rule.replace(">= 50", ">= 70"));
    minute(&example, &live);
    // 12:00 has another outcome now and is reported again; 12:01 is new.
    let lowered = |minute| expected("34", 50, "Warning", "Threshold >= 10", minute);
    assert_eq!(last(3), [lowered("12:00"), warning("12:01"), lowered("12:01")]);
    agree(&example, &live, "swapped");

    let status = live.host.status().unwrap();
    let mine = status.scenarios.iter().find(|s| s.scenario.as_str() == "s1-rule-only").unwrap();
    assert_eq!((mine.plugin.as_ref(), mine.state), (None, ScenarioState::Running));
    assert_eq!(mine.rules.len(), 2);

    // A batch of it replays to the same bytes.
    let record = live.built.ledger.head(&RunKey::live(DECLARED.parse().unwrap())).unwrap().unwrap();
    let replayed = live.host.side(&DECLARED.parse().unwrap(), record.plan.time, false).unwrap();
    assert_eq!((replayed.replayed, replayed.raised), (Some(record.plan.id), record.raised));
    assert_eq!(replayed.outputs["s1_results"].rows.len(), 3);
}

/// A rule that fails for some counts and answers half for others.
const PICKY: &str = r#"{"contentType": "application/vnd.gorules.decision", "nodes": [
  {"id": "in", "type": "inputNode", "name": "In", "content": {}},
  {"id": "f", "type": "functionNode", "name": "Picky", "content":
    "function handler(i) { if (i.err_cnt === 7) throw new Error('seven'); if (i.err_cnt === 5) return { should_alarm: true, severity: 'Minor' }; return { should_alarm: i.err_cnt > 3, severity: i.err_cnt > 8 ? 'Dire' : 'MAJOR', alarm_reason: 'r' + (i.err_cnt > 10) } }"},
  {"id": "out", "type": "outputNode", "name": "Out", "content": {}}],
 "edges": [{"id": "a", "sourceId": "in", "targetId": "f", "type": "edge"}, {"id": "b", "sourceId": "f", "targetId": "out", "type": "edge"}]}"#;

const ROUTERS: [(&str, &str); 4] = [
    ("Edge-RouterA-034", "203.0.113.34"),
    ("core/1%2F", "203.0.113.1"),
    ("länge", "2001:db8::1"),
    ("Edge-RouterA-034", "203.0.113.35"),
];

/// Messages of a minute, some of them kept back for the next file, so that a count grows after it was judged.
fn messages(random: &mut StdRng, minute: Time, late: &mut String) -> String {
    let mut now = std::mem::take(late);
    for (host, ip) in ROUTERS {
        // Mostly around the thresholds of the rules; often none at all, so that alarms clear.
        let count = [0, 0, 0, 2, 4, 5, 7, 8, 9, 10, 12, 29, 30, 49, 50, 60][random.random_range(0..16)];
        for i in 0..count + random.random_range(0..3) {
            let at = minute.plus(std::time::Duration::from_micros(random.random_range(0..60_000_000)));
            let message = match i < count {
                true => json!("WARNING: sapDHCPLseStatePopulateErr: limit"),
                false => [json!(null), json!("linkUp: Port 1/1/4"), json!("")][random.random_range(0..3)].clone(),
            };
            let row = json!({"router_host": host, "router_ip": ip, "collected_at": at, "syslog_message": message});
            let to = if random.random_range(0..12) == 0 { &mut *late } else { &mut now };
            writeln!(to, "{row}").unwrap();
        }
    }
    now
}

fn history(seed: u64, minutes: usize) {
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let example = Example::some(&["s1-syslog", "s1-rule-only"]);
    let stream = "netops/streams/s1_router_syslog_events.toml";
    let text = std::fs::read_to_string(example.store().join(stream)).unwrap();
    let source = text.find("[source]").unwrap();
    let files = "[source]\ntype = \"files\"\npath = \"syslog\"\ninclude = \"*.jsonl\"\n";
    example.write(stream, format!("{}{files}", &text[..source]).as_bytes());
    example.write("netops/syslog/readme", b"");
    let live = open(&example);
    let starter = std::fs::read_to_string(example.store().join(format!("{PLUGIN}/rules/1-2.json"))).unwrap();
    let rules = [starter.clone(), starter.replace(">= 50", ">= 30").replace(">= 10", ">= 5"), PICKY.to_owned()];
    let mut rule = 0;
    let mut late = String::new();
    for n in 0..minutes {
        let minute_now = example.clock.now().floor(std::time::Duration::from_secs(60), Default::default());
        let rows = messages(&mut random, minute_now, &mut late);
        example.write(&format!("netops/syslog/{n:04}.jsonl"), rows.as_bytes());
        example.write(&format!("netops/syslog/{n:04}.jsonl.done"), b"");
        if n % 6 == 5 {
            rule = (rule + 1) % rules.len();
            swap(&example, &live, &rules[rule]);
        }
        // Now and then ticks are skipped, or the same minutes are seen again by a batch of the next minute only.
        if random.random_range(0..10) == 0 {
            example.clock.advance(std::time::Duration::from_secs(60));
        }
        minute(&example, &live);
    }
    let (rows, events) = agree(&example, &live, &format!("seed {seed}"));
    let aside = example.rows(
        &live,
        "select origin, count(*) n from dead_letters where batch_time is not null group by origin order by origin",
    );
    eprintln!("seed {seed}: {rows} rows, {events} changes, put aside {aside:?}");
    assert!(rows > minutes && events > minutes / 2, "too little happened: {rows} rows, {events} changes");
    let counts: Vec<&Value> = aside.iter().map(|a| &a["n"]).collect();
    assert!(
        counts.len() == 2 && counts[0] == counts[1],
        "seed {seed}: both put the same number of rows aside: {aside:?}"
    );
}

#[test]
fn both_forms_agree_on_random_histories() {
    for seed in [1, 2, 3] {
        history(seed, 40);
    }
}

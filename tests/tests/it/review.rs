//! `weir review` on the example: what a batch asked and was answered, and why there is no alarm, against the spec's
//! starter data; beside the live batches, which it never changes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use weir_model::batch::Outcome;
use weir_model::port::Ledger;
use weir_model::review::{Answered, Call, Live as LiveRun, Made, Reason, Review, ReviewAsk, Sample};
use weir_model::service::Service;
use weir_model::{BatchId, FaultKind, RunKey, Time};

use crate::support::example::{Example, Live};
use crate::support::feed;

pub fn ask(example: &Example, at: Option<&str>) -> ReviewAsk {
    let at = at.map(|minute| format!("2026-01-31T{minute}:00Z").parse().unwrap());
    ReviewAsk { scenario: example.scenario(), at, latest: false, rows: 20 }
}

pub fn last(example: &Example, live: &Live) -> Review {
    live.host.review(&ask(example, None)).unwrap()
}

pub fn at(example: &Example, live: &Live, minute: &str) -> Review {
    live.host.review(&ask(example, Some(minute))).unwrap()
}

fn rows(answer: &Answered) -> &Sample {
    match answer {
        Answered::Rows(sample) => sample,
        Answered::Error(error) => panic!("{error}"),
    }
}

/// The calls as words: what was asked, and how much was answered.
pub fn calls(review: &Review) -> Vec<String> {
    let words = |call: &Call| match call {
        Call::Input { stream, answer } => format!("input {stream}: {}", rows(answer).total),
        Call::Query { query, answer, .. } => format!("query {query}: {}", rows(answer).total),
        Call::Rule { rule, evaluations, answer, .. } => format!("rule {rule}: {evaluations}, {}", rows(answer).total),
    };
    review.calls.iter().map(words).collect()
}

fn query<'a>(review: &'a Review, name: &str) -> (&'a Map<String, Value>, &'a Sample, Vec<Option<u64>>) {
    let found = review.calls.iter().find_map(|call| match call {
        Call::Query { query, params, reads, answer, .. } if query == name => {
            Some((params, rows(answer), reads.iter().map(|read| read.rows).collect()))
        }
        _ => None,
    });
    found.unwrap()
}

type Row = Map<String, Value>;

/// Rows that a rule was given one by one, and what it answered to them.
fn judged<'a>(review: &'a Review, name: &str) -> Vec<(u64, &'a Row, &'a Row)> {
    let found = review.calls.iter().find_map(|call| match call {
        Call::Rule { rule, each: Some(each), answer, .. } if rule == name => {
            let answers = rows(answer);
            assert_eq!(each.numbers, answers.numbers, "side by side");
            let both = each.rows.rows.iter().zip(&answers.rows.rows);
            Some(each.numbers.iter().zip(both).map(|(n, (input, answer))| (*n, input, answer)).collect())
        }
        _ => None,
    });
    found.unwrap()
}

/// How often rule 1-2 said what, in S1.
fn tally(review: &Review) -> BTreeMap<String, u64> {
    let Call::Rule { tallies, .. } = &review.calls[2] else { panic!("it is a rule") };
    tallies.iter().find(|tally| tally.column == "should_alarm").unwrap().counts.clone()
}

pub fn made(review: &Review) -> Vec<(String, Made)> {
    review.alarms.iter().map(|alarm| (alarm.key.join(" "), alarm.made)).collect()
}

/// An edited ruleset, active.
pub fn edited(example: &Example, live: &Live, edit: impl FnOnce()) {
    let digest = || live.built.store_digest(example);
    let before = digest();
    edit();
    example.until(live, "the edit is active", |v| {
        v.pending.is_none() && v.active.as_ref().is_some_and(|a| a.ruleset.digest != before)
    });
}

trait StoreDigest {
    fn store_digest(&self, example: &Example) -> weir_model::Digest;
}

impl StoreDigest for weir::wiring::Built {
    fn store_digest(&self, example: &Example) -> weir_model::Digest {
        use weir_model::port::RuleStore as _;
        self.store.scenario(&example.scenario()).unwrap().active.unwrap().ruleset.digest
    }
}

/// A rule's file without the sample cases that go with the starter rule.
pub fn rule(example: &Example, file: &str, from: &str, to: &str) {
    let scenario = example.scenario();
    let _ = std::fs::remove_file(example.store().join(format!("{scenario}/rules/{file}.cases.json")));
    example.edit(&format!("{scenario}/rules/{file}.json"), from, to);
}

#[test]
fn s1_shows_the_counts_what_the_rule_said_of_each_and_the_alarms() {
    for scenario in ["s1-syslog", "s1-rule-only"] {
        let example = Example::of(scenario);
        let live = example.open();
        example.batches(&live);
        let review = last(&example, &live);
        assert_eq!((review.replayed, review.plan.time), (Some(BatchId(1)), "2026-01-31T12:00:00Z".parse().unwrap()));
        assert_eq!(calls(&review), ["rule 1-1: 1, 1", "query error_counts: 6", "rule 1-2: 6, 6"], "{scenario}");
        let (params, counts, reads) = query(&review, "error_counts");
        let expected = json!({
            "from": "2026-01-31T11:58:00Z", "to": "2026-01-31T12:00:00Z", "pattern": "%sapDHCPLseStatePopulateErr%",
        });
        assert_eq!(Value::Object(params.clone()), expected);
        // 62 that match and 36 that do not, in each of two minutes
        assert_eq!(reads, [Some(196)]);
        assert_eq!(counts.left_out(), 0);
        let counted: Vec<_> =
            counts.rows.rows.iter().map(|r| (r["router_ip"].as_str(), r["err_cnt"].as_i64())).collect();
        let minute =
            [(Some("203.0.113.33"), Some(10)), (Some("203.0.113.34"), Some(50)), (Some("203.0.113.36"), Some(2))];
        assert_eq!(counted, [minute, minute].concat());
        let said: Vec<_> = judged(&review, "1-2")
            .into_iter()
            .map(|(_, input, answer)| {
                (input["err_cnt"].as_i64().unwrap(), &answer["should_alarm"], &answer["severity"])
            })
            .collect();
        let of = [(10, true, "Warning"), (50, true, "Critical"), (2, false, "Info")]
            .map(|(n, a, s)| (n, json!(a), json!(s)));
        let of: Vec<_> = of.iter().map(|(n, a, s)| (*n, a, s)).collect();
        assert_eq!(said, [of.clone(), of].concat());
        assert_eq!(tally(&review), [("false".to_owned(), 2), ("true".to_owned(), 4)].into());

        let opened = |router: &str| (format!("Edge-RouterA-0{router} 203.0.113.{router}"), Made::Opened);
        assert_eq!(made(&review), [opened("33"), opened("34")]);
        assert_eq!(review.alarms[1].because[0].source, "query:error_counts#1");
        let output = review.outputs.iter().find(|(name, _)| name.as_str() == "s1_results").unwrap().1;
        assert_eq!((output.total, &output.rows.rows[1]["alarm_reason"]), (4, &json!("Threshold >= 50")));
        let state = review.state.as_ref().unwrap();
        assert!(state.found == 0 && state.read > 0 && state.put == 6, "four minutes and two open alarms: {state:?}");
        assert_eq!(review.reasons, []);
        let input = &review.inputs[0];
        // 98 messages a minute for a quarter of an hour, and what came of the half minute after T
        assert!(input.read && input.rows.unwrap().rows >= 98 * 15, "{input:?}");
        assert_eq!(input.new_rows, input.rows.map(|extent| extent.rows));
        let LiveRun::Committed { id, outcome, raised, events, agrees } = &review.live else { panic!("it ran") };
        assert_eq!((id.0, outcome, *raised, *events, *agrees), (1, &Outcome::Judged, 2, 2, Some(true)));

        // The next minute raises them again, which nobody is told of.
        example.minute(&live);
        let review = last(&example, &live);
        assert_eq!(review.replayed, Some(BatchId(2)));
        assert_eq!(review.reasons, [Reason::OpenAlready { alarms: 2 }]);
        assert!(review.alarms.iter().all(|a| a.made == Made::Updated && a.count == 2), "{:?}", review.alarms);
        assert!(review.state.unwrap().found >= 2, "11:59 was reported");

        // The first batch is still what it was.
        let again = at(&example, &live, "12:00");
        assert_eq!((again.raised, again.reasons), (2, vec![]));
    }
}

#[test]
fn s2_shows_what_each_query_gave_the_next_and_the_rule() {
    let example = Example::of("s2-linkdown");
    let live = example.open();
    example.batches(&live);
    let review = last(&example, &live);
    assert_eq!(
        calls(&review),
        ["query linkdown_links: 2", "query link_devices: 4", "query traffic_anomalies: 8", "rule 2: 1, 2"]
    );
    let (params, _, _) = query(&review, "traffic_anomalies");
    let expected = json!({"from": "2026-01-31T11:57:00Z", "to": "2026-01-31T11:59:00Z"});
    assert_eq!(Value::Object(params.clone()), expected);
    let Call::Rule { arrays, unnest, answer, .. } = &review.calls[3] else { panic!("it is a rule") };
    let given = &arrays["anomaly_results"];
    let mut flags: Vec<_> = given
        .rows
        .rows
        .iter()
        .map(|r| format!("{} {} {}", r["local_device_name"], r["actual_gbps"], r["anomaly_flag"]).replace('"', ""))
        .collect();
    flags.sort();
    flags.dedup();
    let expected = ["1 70.0 high_anomaly", "2 50.0 normal", "3 30.0 low_anomaly", "4 50.0 normal"]
        .map(|r| format!("Router-A-{r}"));
    assert_eq!((given.total, flags), (8, expected.to_vec()));
    let mut said: Vec<_> = rows(answer)
        .rows
        .rows
        .iter()
        .map(|r| (r["local_device_name"].as_str(), r["high_count"].as_i64(), r["low_count"].as_i64()))
        .collect();
    said.sort();
    let expected = [(Some("Router-A-1"), Some(2), Some(0)), (Some("Router-A-3"), Some(0), Some(2))];
    assert_eq!((unnest.as_deref(), said), (Some("alarms"), expected.to_vec()));
    let opened = |device: &str| (format!("203.0.113.90 {device}"), Made::Opened);
    assert_eq!(made(&review), [opened("Router-A-1"), opened("Router-A-3")]);
    assert_eq!(review.reasons, []);
    assert_eq!(review.plan.tables.len(), 1);

    // No link went down in the minute that the batch is about: it ends after its first query.
    let example = Example::of("s2-linkdown");
    feed::stream(
        &example,
        "s2_snmp_linkdown_events",
        "event_at, router_ip, link_type",
        "(arrow_cast('2026-01-31T11:50:00Z', 'Timestamp(Microsecond, Some(\"UTC\"))'), '203.0.113.90', 'CORE-METRO')",
    );
    let live = example.open();
    example.batches(&live);
    let review = last(&example, &live);
    assert_eq!(calls(&review), ["query linkdown_links: 0"]);
    let [none, empty, not_asked] = &review.reasons[..] else { panic!("{:?}", review.reasons) };
    let Reason::NoneInRange { query, stream, from, to, latest } = none else { panic!("{none:?}") };
    assert_eq!((query.as_str(), stream.as_str()), ("linkdown_links", "s2_snmp_linkdown_events"));
    assert_eq!([from, to].map(Time::to_string), ["2026-01-31T11:55:00Z", "2026-01-31T11:56:00Z"]);
    assert_eq!(*latest, Some("2026-01-31T11:50:00Z".parse().unwrap()));
    let params = json!({"from": "2026-01-31T11:55:00Z", "to": "2026-01-31T11:56:00Z"});
    let params = params.as_object().unwrap().clone();
    assert_eq!(*empty, Reason::EmptyAnswer { query: "linkdown_links".into(), calls: 1, params });
    assert_eq!(*not_asked, Reason::RuleNotAsked { rule: "2".into() });
}

#[test]
fn s3_shows_the_ratio_that_the_rule_found_too_small_and_the_one_that_alarms() {
    let example = Example::of("s3-iptv");
    let live = example.open();
    example.batches(&live);
    example.minute(&live);
    example.minute(&live);
    // 12:00 compares minute 7 of ten, 12:02 compares minute 9
    let quiet = at(&example, &live, "12:00");
    assert_eq!(quiet.raised, 0);
    let no = Reason::RuleSaysNo { rule: "3-2".into(), field: "is_alarm".into(), inputs: 3 };
    let surges = judged(&quiet, "3-2").iter().filter(|(_, input, _)| input["diff_ratio"].as_f64() > Some(0.2)).count();
    assert_eq!(surges, 0, "{:?}", judged(&quiet, "3-2"));
    assert_eq!(quiet.reasons, [no]);

    let review = at(&example, &live, "12:02");
    assert_eq!(
        calls(&review)[..],
        [
            "rule 3-1: 1, 1",
            "query persisting_alarms: 2",
            "query service_interfaces: 3",
            "query multicast_traffic: 3",
            "rule 3-2: 3, 3"
        ]
    );
    let said: Vec<_> = judged(&review, "3-2")
        .iter()
        .map(|(_, input, answer)| {
            let ratio = (input["diff_ratio"].as_f64().unwrap() * 1e9).round() / 1e9;
            let interface = input["ser_equip_ip"].as_str().unwrap();
            (
                interface,
                ratio,
                input["last_1m_tx_multicast_pkts"].as_f64().unwrap(),
                answer["is_alarm"].as_bool().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("198.51.100.211", 80.000_000_081, 1e12, true),
        ("198.51.100.212", 80.000_000_081, 1e12, true),
        ("198.51.100.213", 0.0, 5000.0, false),
    ];
    assert_eq!(said, expected);
    let opened = |key: &str| (key.to_owned(), Made::Opened);
    assert_eq!(made(&review), [opened("198.51.100.211 9/2/1"), opened("198.51.100.212 9/1/1")]);
    assert_eq!(review.reasons, []);
}

#[test]
fn a_review_changes_nothing_and_says_the_same_from_bronze() {
    let example = Example::new();
    let live = example.open();
    let fault = live.host.review(&ask(&example, None)).unwrap_err();
    assert_eq!((fault.kind, fault.field.as_deref()), (FaultKind::NotFound, None));
    example.batches(&live);
    example.minute(&live);
    let key = RunKey::live(example.scenario());
    let records = || live.built.ledger.records(&key, None, 10).unwrap();
    let (before, first) = (records(), last(&example, &live));
    assert_eq!(records(), before);
    assert_eq!(first, last(&example, &live));
    drop(live);
    // Beyond the hot window, its rows are read from the table, and the ranges of queries are counted there.
    example.clock.advance(Duration::from_secs(40 * 60));
    let live = example.open();
    example.batches(&live);
    let mut again = at(&example, &live, "12:01");
    again.usage = first.usage;
    assert_eq!(again, first);
}

#[test]
fn a_batch_with_tens_of_thousands_of_rows_is_shown_in_a_few() {
    let example = Example::new();
    let stream = "netops/streams/s1_router_syslog_events.toml";
    let text = std::fs::read_to_string(example.store().join(stream)).unwrap();
    let (head, _) = text.split_once("[source]").unwrap();
    // One message of each of 30,000 routers, and twelve of the last.
    let source = "[source]\ntype = \"generate\"\ninterval = \"1h\"\nsql = '''\n\
        SELECT 'router-' || CASE WHEN n > 30000 THEN 30000 ELSE n END AS router_host, '203.0.113.1' AS router_ip,\n\
        arrow_cast('2026-01-31T11:59:30Z', 'Timestamp(Microsecond, Some(\"UTC\"))') AS collected_at,\n\
        'sapDHCPLseStatePopulateErr' AS syslog_message FROM generate_series(1, 30011) AS given(n) WHERE $tick = 0\n'''\n";
    example.write(stream, format!("{head}{source}").as_bytes());
    let live = example.open();
    example.batches(&live);
    let review = last(&example, &live);
    assert_eq!(calls(&review), ["rule 1-1: 1, 1", "query error_counts: 30000", "rule 1-2: 30000, 30000"]);
    let (_, counts, reads) = query(&review, "error_counts");
    assert_eq!((counts.rows.rows.len(), counts.left_out(), reads), (20, 29_980, vec![Some(30_011)]));
    // The one that alarms is among those that are shown.
    let said = judged(&review, "1-2");
    let alarming: Vec<_> = said.iter().filter(|(_, _, answer)| answer["should_alarm"] == true).collect();
    assert_eq!((said.len(), alarming.len(), &alarming[0].1["err_cnt"]), (20, 1, &json!(12)));
    assert_eq!(tally(&review), [("false".to_owned(), 29_999), ("true".to_owned(), 1)].into());
    let state = review.state.as_ref().unwrap();
    assert!(state.read >= 30_000 && state.entries.len() == 20, "{} read", state.read);
    assert_eq!(made(&review), [("router-30000 203.0.113.1".to_owned(), Made::Opened)]);
    let size = serde_json::to_vec(&review).unwrap().len();
    assert!(size < 100_000, "{size} bytes");
    let none = live.host.review(&ReviewAsk { rows: 0, ..ask(&example, None) }).unwrap();
    assert_eq!((rows_shown(&none), none.alarms_left_out, none.raised, none.reasons), (0, 1, 1, vec![]));
    let most = live.host.review(&ReviewAsk { rows: u32::MAX, ..ask(&example, None) }).unwrap();
    assert_eq!(query(&most, "error_counts").1.rows.rows.len(), 1_000);
}

fn rows_shown(review: &Review) -> usize {
    let of = |call: &Call| match call {
        Call::Input { answer, .. } | Call::Query { answer, .. } => rows(answer).rows.rows.len(),
        Call::Rule { answer, each, .. } => {
            rows(answer).rows.rows.len() + each.as_ref().map_or(0, |each| each.rows.rows.len())
        }
    };
    review.calls.iter().map(of).sum::<usize>() + review.outputs.values().map(|o| o.rows.rows.len()).sum::<usize>()
}

//! Random data for S1, and the test: both forms of the scenario against the oracle.

use serde_json::{Value, json};

use super::dice::{Dice, arrival, times};
use super::real::{Kept, Real, Rows, arrived, there};
use super::s1::{Memory, Message, judge, matches};
use super::{MINUTE, Seen, every_seed, minute_of};

const PATTERNS: [&str; 14] = [
    "%sapDHCPLseStatePopulateErr%",
    "%sapDHCPLseStatePopulateErr%",
    "%sapDHCPLseState________Err%",
    "SVCMGR%",
    "%a_b%",
    "%a\\_b%",
    "%100\\%",
    "%100%",
    "%off",
    "%é_日%",
    "a%b%c",
    "%\\\\%",
    "",
    "%",
];

const TEXTS: [&str; 22] = [
    "SVCMGR sapDHCPLseStatePopulateErr: DHCP lease state",
    "sapDHCPLseStatePopulateErr",
    "SAPDHCPLSESTATEPOPULATEERR",
    "sapDHCPLseStatePopulateEr",
    "svcmgr a_b",
    "SVCMGR a_b",
    "axb",
    "A_B",
    "ab",
    "load 100%",
    "load 100% and more",
    "load 1000",
    "50 off",
    "50 OFF",
    "café 日本",
    "CAFÉ 日本",
    "a\nb\nc",
    "abc",
    "back\\slash",
    "",
    " ",
    "line\nsapDHCPLseStatePopulateErr\nline a_b é 日",
];

const ROUTERS: [(&str, &str); 4] = [
    ("Edge-RouterA-034", "203.0.113.34"),
    ("Edge-RouterA-034", "203.0.113.35"),
    ("Edge-RouterA-033", "203.0.113.34"),
    ("a/b%c", ""),
];

fn message(dice: &mut Dice, start: i64, (host, ip): (&str, &str), text: Option<&str>) -> Message {
    let at = match dice.below(12) {
        0 => start,
        1 => start + MINUTE - 1,
        _ => start + i64::try_from(dice.below(60_000_000)).unwrap(),
    };
    Message { at, host: host.to_owned(), ip: ip.to_owned(), text: text.map(str::to_owned) }
}

fn data(dice: &mut Dice, pattern: &str, batches: &[i64]) -> Vec<(usize, Message)> {
    let mut rows = Vec::new();
    if dice.one_in(20) {
        return rows;
    }
    let (hits, misses): (Vec<&str>, Vec<&str>) = TEXTS.iter().partition(|text| matches(text, pattern));
    let routers = 1 + dice.below(ROUTERS.len());
    for minute in -3..=1 {
        for router in &ROUTERS[..routers] {
            let mut texts = Vec::new();
            for _ in 0..dice.of(&[0, 0, 0, 1, 2, 9, 9, 10, 10, 11, 49, 50, 50, 51, 60]) {
                texts.push(if hits.is_empty() { None } else { Some(dice.of(&hits)) });
            }
            for _ in 0..dice.below(4) {
                texts.push(if misses.is_empty() || dice.one_in(3) { None } else { Some(dice.of(&misses)) });
            }
            for text in texts {
                let row = message(dice, minute_of(batches[0]) + minute * MINUTE, *router, text);
                rows.push((arrival(dice, batches.len()), row));
            }
        }
    }
    rows
}

fn row(message: &Message) -> Value {
    json!({
        "collected_at": message.at,
        "router_host": message.host,
        "router_ip": message.ip,
        "syslog_message": message.text,
    })
}

fn agrees(scenario: &'static str) {
    let real = Real::new(scenario);
    let with = |pattern: &&str| real.prepared(None, Some(&real.rules("1-1", &json!({ "pattern": pattern }))));
    let rulesets: Vec<_> = PATTERNS.iter().map(with).collect();
    every_seed(scenario, &[("rows", 300), ("silence", 300)], |seed| {
        let mut dice = Dice::new("s1", seed);
        let which = dice.below(PATTERNS.len());
        let batches = times(&mut dice);
        let rows = data(&mut dice, PATTERNS[which], &batches);
        let (mut seen, mut memory, mut kept) = (Seen::default(), Memory::default(), Kept::default());
        seen.when("no rows", rows.is_empty());
        for (i, time) in batches.iter().enumerate() {
            let expected = judge(&there(&rows, i), PATTERNS[which], *time, &mut memory, &mut seen);
            let streams = Rows::from([("s1_router_syslog_events", arrived(&rows, i, row))]);
            let said = real.batch(&rulesets[which], *time, &streams, &mut kept, "s1_results");
            assert_eq!(said, expected, "{scenario}, seed {seed}, batch {i} at {time}, pattern {:?}", PATTERNS[which]);
        }
        seen
    });
}

#[test]
fn s1_agrees() {
    agrees("s1-syslog");
}

#[test]
fn s1_without_a_plugin_agrees() {
    agrees("s1-rule-only");
}

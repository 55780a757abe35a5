//! S1 as the spec has it: syslog messages that match a pattern, by minute and router, judged by two thresholds.
//!
//! Where the spec is silent: an outcome is (severity, reason), so a count that grows within one is not reported again; a
//! router's alarm speaks of its latest alarming minute, and is over once the last full minute has matching messages of it and
//! is judged well, unless that batch is the first to report an earlier minute.

use std::collections::BTreeMap;

use weir_model::Severity;

use super::{Cell, MINUTE, Said, Seen, minute_of, sorted};

#[derive(Debug, Clone)]
pub(super) struct Message {
    pub at: i64,
    pub host: String,
    pub ip: String,
    pub text: Option<String>,
}

type Router = (String, String);

/// What batches before have said.
#[derive(Debug, Default)]
pub(super) struct Memory {
    reported: BTreeMap<(i64, Router), Severity>,
    open: BTreeMap<Vec<String>, (Severity, i64)>,
}

/// SQL LIKE: `%` any text, `_` one character, `\` takes the next one as it is. Case counts.
fn like(text: &[char], pattern: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['%', rest @ ..] => (0..=text.len()).any(|skip| like(&text[skip..], rest)),
        ['_', rest @ ..] => !text.is_empty() && like(&text[1..], rest),
        ['\\', one, rest @ ..] | [one, rest @ ..] => text.first() == Some(one) && like(&text[1..], rest),
    }
}

pub(super) fn matches(text: &str, pattern: &str) -> bool {
    let chars = |text: &str| text.chars().collect::<Vec<_>>();
    like(&chars(text), &chars(pattern))
}

/// The thresholds of rule 1-2.
fn threshold(err_cnt: i64) -> Option<(Severity, &'static str, &'static str)> {
    match err_cnt {
        50.. => Some((Severity::Critical, "Critical", "Threshold >= 50")),
        10.. => Some((Severity::Warning, "Warning", "Threshold >= 10")),
        _ => None,
    }
}

/// Matching messages of the two minutes before `t0`, by minute and router.
fn count(messages: &[&Message], pattern: &str, t0: i64, seen: &mut Seen) -> BTreeMap<(i64, Router), i64> {
    let mut counts: BTreeMap<(i64, Router), i64> = BTreeMap::new();
    for message in messages {
        let Some(text) = &message.text else {
            seen.when("a message without a text", true);
            continue;
        };
        seen.when("a message at the window's start", message.at == t0 - 2 * MINUTE);
        seen.when("a message just before the window", message.at == t0 - 2 * MINUTE - 1);
        seen.when("a message just before the window's end", message.at == t0 - 1);
        seen.when("a message at the window's end", message.at == t0);
        if !(t0 - 2 * MINUTE..t0).contains(&message.at) {
            continue;
        }
        let hit = matches(text, pattern);
        seen.when("another case", !hit && matches(&text.to_lowercase(), &pattern.to_lowercase()));
        seen.when("several lines match", hit && text.contains('\n'));
        seen.when("characters of several bytes match", hit && !text.is_ascii());
        if hit {
            *counts.entry((minute_of(message.at), (message.host.clone(), message.ip.clone()))).or_default() += 1;
        }
    }
    counts
}

pub(super) fn judge(messages: &[&Message], pattern: &str, time: i64, memory: &mut Memory, seen: &mut Seen) -> Said {
    let t0 = minute_of(time);
    let mut rows = Vec::new();
    let mut routers: BTreeMap<Router, Vec<(i64, Option<Severity>, bool)>> = BTreeMap::new();
    for ((minute, router), err_cnt) in count(messages, pattern, t0, seen) {
        for (what, exactly) in [("9 errors", 9), ("10 errors", 10), ("49 errors", 49), ("50 errors", 50)] {
            seen.when(what, err_cnt == exactly);
        }
        let mut fresh = false;
        if let Some((severity, name, reason)) = threshold(err_cnt) {
            let before = memory.reported.insert((minute, router.clone()), severity);
            fresh = before != Some(severity);
            seen.when("an outcome that was reported", !fresh);
            seen.when("another outcome of a minute that was reported", fresh && before.is_some());
            if fresh {
                let text = |text: &str| Cell::Text(text.to_owned());
                rows.push(vec![
                    Cell::Time(time),
                    text(&router.0),
                    text(&router.1),
                    Cell::Int(err_cnt),
                    text(name),
                    text(reason),
                    Cell::Time(minute),
                ]);
            }
        }
        routers.entry(router).or_default().push((minute, threshold(err_cnt).map(|t| t.0), fresh));
    }

    for (router, minutes) in routers {
        let key = vec![router.0, router.1];
        let over = minutes.iter().any(|(minute, severity, _)| *minute == t0 - MINUTE && severity.is_none());
        let latest = minutes.iter().rev().find_map(|(_, severity, fresh)| severity.map(|s| (s, *fresh)));
        if over && memory.open.contains_key(&key) {
            seen.when("an alarm that is over", true);
            memory.open.remove(&key);
        } else if let Some((severity, fresh)) = latest
            && (!over || fresh)
        {
            seen.when("an alarm that was over when it was first seen", over);
            memory.open.insert(key, (severity, time));
        }
    }
    seen.when("rows", !rows.is_empty());
    seen.when("silence", rows.is_empty());
    Said { rows: sorted(rows), open: memory.open.clone() }
}

#[test]
fn like_is_that_of_sql() {
    for (text, pattern, is) in [
        ("", "", true),
        ("", "%", true),
        ("", "_", false),
        ("ab", "a_", true),
        ("a", "a_", false),
        ("Ab", "ab", false),
        ("xabx", "%ab%", true),
        ("100%", "100\\%", true),
        ("1000", "100\\%", false),
        ("a_b", "a\\_b", true),
        ("axb", "a\\_b", false),
        ("a\nb", "a%b", true),
        ("a\\b", "a\\\\b", true),
    ] {
        assert_eq!(matches(text, pattern), is, "{text:?} like {pattern:?}");
    }
}
